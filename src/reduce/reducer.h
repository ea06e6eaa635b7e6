/* Inside of rill_reducer. A step is a request of three stages: prepare (feed: clip, momentum,
 * residual; select) in the call that starts it, the call itself, and complete (take back, update)
 * as the call's sequel, by whoever advances the request to its end. */
#ifndef RILL_REDUCE_REDUCER_H
#define RILL_REDUCE_REDUCER_H

#include "call/call.h"
#include "coll/away.h"
#include "coll/topk/topk.h"
#include "select/selector_state.h"
#include "stream/part_ops.h"

typedef enum rill__choice {
    RILL__SEND_ALL,     /* the gradient as it is, by MPI's own allreduce */
    RILL__SEND_NONZERO, /* every entry that is not 0 */
    RILL__SEND_SELECTED,
    RILL__UNDECIDED /* select "auto", before the first step */
} rill__choice;

/* Where the update of a step under way goes. */
typedef struct rill__target {
    void *dense;
    rill_stream *stream;
    const rill_tensor *tensors; /* n of them, instead of dense */
    int n;
    bool apart; /* the gradient is in them as well, and nowhere together */
} rill__target;

/* A step in which a rank is gone may be complete elsewhere (reducer_move.c). */
typedef struct rill__moving {
    bool interrupted;                /* the last step ended so, and is undone here */
    bool lacks;                      /* there was no memory for what follows */
    bool zero;                       /* the residual is 0 if the step is complete: not kept */
    rill__buffer residual, momentum; /* what they are if it is */
    bool has_last, last_void;        /* there is a result of the last complete step */
    double divisor;                  /* that it is still to be divided by */
} rill__moving;

/* What errands need (reducer_away.c). */
typedef struct rill__coder {
    rill__away away;
    bool expects;         /* the last step was planned so */
    bool loses;           /* this step's values lost something by coding: */
    rill__buffer lost;    /* that, of each that was selected, in the space */
    rill__buffer payload; /* page-locked */
    rill__buffer chunks;
    struct rill__coded_pairs *list; /* of messages, and the counts of their pairs */
    rill__pairs *pairs;
    int capacity;
} rill__coder;

struct rill_reducer {
    rill_comm *comm;
    const rill__space *space;  /* that gradients, updates and all vectors of the reducer lie in */
    const rill__space *opened; /* the same, where it is the reducer's own; else NULL */
    rill_type type;
    uint64_t dim;
    rill_reducer_options options; /* strings copied, numbers resolved */
    double *warmup;
    rill__choice choice;
    const char *method; /* of selection */
    rill_collective collective;
    const rill__algorithm *algorithm; /* NULL: the planner chooses an allreduce for each call */
    uint64_t k;                       /* of the present stage of the warm-up */

    rill_selector **selectors; /* one, or one for each part of the index space */
    uint64_t *bounds;          /* of those parts: n_selectors + 1 */
    int n_selectors, selectors_capacity;
    rill_stream *part; /* of one selector, where there are several */

    rill__buffer residual; /* dim values */
    bool residual_is_zero; /* for sure, so that nobody need look */
    rill__buffer momentum; /* u; only with momentum */
    rill__buffer
        pending; /* accumulated gradients that clip or momentum are still to be applied to */
    bool pending_used;
    rill__buffer scaled, fused; /* a clipped or copied gradient; fused tensors */

    rill_stream *selected; /* what is sent, in the space */
    rill_stream borrowed;  /* dense: the gradient itself */
    rill_stream *result;   /* of the call, where the user gave no stream */
    /* Calls work in the host's memory. In another space, input and result are copied: what was
     * selected, no more. */
    rill_stream *staged;           /* selected or borrowed, on the host */
    rill_stream *delivered;        /* the result in the space; on the host, the request's output */
    rill_stream *landed;           /* that, where the user gave no stream */
    rill__piece given_back;        /* a returned part, in the space */
    rill__coder coder;             /* where messages are coded and summed there */
    struct rill__mailing *mailing; /* steps that the device is given ahead; NULL: none yet */
    const rill_stream *entering;   /* what the call of the step under way takes as its input */
    rill_request *request;
    rill_request *now;   /* that of the step under way, or of the last: request, or one of on's */
    struct rill__on *on; /* steps in the order of a stream; NULL: there was none yet */
    rill__feedback feedback;
    rill__target target;
    rill_tensor *tensors; /* the list of the last fused step */
    bool blocking;

    /* nonfinite: what a step needs in order to be undone (undo.c) */
    bool guards, voids;   /* values that are not finite count as 0; and make the step void */
    bool skipped;         /* this rank had one */
    bool pending_skipped; /* a micro-batch had one */
    bool checks;          /* the update is looked at while it is written */
    bool uses_pending;    /* pending is in the step under way */
    const void *fed;      /* what was added to the residual; NULL: nothing, or */
    bool fed_apart;       /* the target's tensors */
    const void *taken;    /* the gradient that the momentum took in; NULL: none */
    rill__buffer memory_before;
    rill__selector_state *states_before; /* of the selectors */
    uint64_t voided_total;

    rill__moving moving; /* what survives of a step in which a rank is gone */
    int asked_bits;      /* options.value_bits as given */

    rill_status failed; /* on this rank, before the call; reported by wait */
    char error[200];

    uint64_t steps;
    uint64_t ticks[4]; /* start, selected, completed, done */
    rill_stats stats;
};

/* ---- reducer.c ---- */
/* rill_reducer_create with all vectors in a space; NULL: that of the options. */
rill_status rill__reducer_create_in(rill_comm *, const rill__space *, rill_type, uint64_t dim,
                                    const rill_reducer_options *, rill_reducer **out);
/* A request for steps; behind a stream, where later. commits: see rill__arguments. */
rill_status rill__reducer_make_request(rill_reducer *, bool later, rill__commits *commits,
                                       rill_request **);
/* The request and the memory of the algorithm, for what has been chosen. */
rill_status rill__reducer_prepare(rill_reducer *);
/* The planner chooses by these for the reducer's calls; they go into its checkpoints. */
rill_status rill__reducer_keep_constants(rill_reducer *, const rill__profile *);

/* What the reducer does from now on in its space comes behind what a user's stream has been given;
 * on the host: nothing. */
static inline rill_status rill__reducer_follow(const rill_reducer *r, void *stream) {
    const rill__space_order *order = r->space->order;
    return order ? order->follow(r->space, stream) : RILL_OK;
}

/* ---- reducer_step.c ---- */
rill__sequel_complete rill__reducer_complete;                   /* the last stage of a step */
rill_status rill__reducer_enter(void *reducer, uint8_t *flags); /* rill__sequel.enter */
rill_status rill__reducer_reserve(void *reducer); /* memory in the space for that stage */

/* ---- reducer_on.c: steps behind the work of a device's stream ---- */
typedef struct rill__on_step {
    struct rill__on_step *next;
    rill_request *request;
    void *mark; /* in the user's stream, behind which the gradient is there */
    const void *gradient;
    void *update;
    rill_tensor *tensors; /* n of them, a copy; or NULL */
    int n;
    uint64_t number;              /* in the order of the calls */
    struct rill__on_step *behind; /* whose gradient is to come as well (reducer_line.c) */
    pthread_cond_t turn;          /* to be the first of them */
    bool mailed;                  /* the device has been given all of it (reducer_mail.c) */
    uint32_t letter;              /* then: its number, */
    uint64_t floor;               /* and the least key that is sent */
    bool loose;                   /* and the user's stream does not wait for it */
    rill_status failed;           /* already when it was queued */
    char error[200];
} rill__on_step;
void rill__reducer_prepare_on(rill_reducer *, const rill__on_step *); /* reducer_step.c */
/* The same in the caller's thread, and the start of the call; tensors as in queue. */
rill_status rill__reducer_begin_on(rill_reducer *, const char *call, const rill__on_step *,
                                   const rill_tensor *tensors, void *stream);
/* The end of a step that counts: k of its entries were selected. */
void rill__reducer_count_step(rill_reducer *, uint64_t k);

/* ---- reducer_tensors.c ---- */
/* Where the gradient lies as one vector, NULL if the target says that it stays apart; and where the
 * update goes. blocking: the user's memory stays as it is until the step ends. */
rill_status rill__reducer_fuse(rill_reducer *, const char *call, int n, const rill_tensor *,
                               bool blocking, rill__target *, const void **gradient);
/* After a failure for want of memory: the gradients wait in the residual. */
void rill__reducer_keep_tensors(rill_reducer *, int n, const rill_tensor *);
void rill__reducer_feed_apart(rill_reducer *); /* the residual, from the target's tensors */
void rill__reducer_undo_apart(rill_reducer *);
void rill__reducer_write_tensors(rill_reducer *, const rill_stream *result);

/* ---- reducer_mail.c: such steps that neither host nor progress wait for ---- */
typedef enum rill__mails { RILL__NO_MAIL, RILL__MAIL_IN_TURN, RILL__MAIL } rill__mails;
/* Whether steps can be: only when those before it have ended, or at any time. */
rill__mails rill__reducer_mails(const rill_reducer *);
/* Gives the device all of a step, in the caller's thread; a failure has given it nothing. */
rill_status rill__reducer_post(rill_reducer *, const char *call, rill__on_step *, rill__mails how,
                               void *stream);
/* The rest of it. given_up: nobody waits for the device any more. Fills in error. */
rill_status rill__reducer_run_mailed(rill_reducer *, rill__on_step *, const atomic_bool *given_up);
rill_status rill__reducer_reserve_mailed(rill_reducer *); /* as rill__reducer_reserve */
void rill__reducer_end_watch(rill_reducer *);             /* no step is under way */
void rill__reducer_free_mail(rill_reducer *);

/* ---- reducer_away.c: a device codes and sums ---- */
/* Whether the selection need not be copied to the host for now. */
bool rill__reducer_stays_away(rill_reducer *);
void rill__reducer_offer_errands(rill_reducer *); /* before the call */
void rill__reducer_add_lost(rill_reducer *);      /* after it: what coding took */
void rill__reducer_forget_sum(rill_reducer *);    /* the call has failed after all */
void rill__reducer_init_coder(rill_reducer *);
void rill__reducer_free_coder(rill_reducer *);

/* ---- reducer_line.c ---- */
uint64_t rill__reducer_next_number(void); /* of a step, in this process */
/* Until the gradient is there; the reducer's operations come behind it from then on. */
rill_status rill__reducer_await(const rill__space *, rill__on_step *);
void rill__reducer_advance(rill_request *); /* until its call has ended */
void rill__reducer_news(void *reducer);     /* rill__sequel.ended */
/* ---- reducer_on.c ---- */
/* Steps are queued, or were, and the user has not been told of their end. */
bool rill__reducer_on_busy(const rill_reducer *);
rill_status rill__reducer_on_wait(rill_reducer *);
rill_status rill__reducer_on_test(rill_reducer *, int *done);
const rill_request *rill__reducer_on_request(const rill_reducer *); /* of the last */
/* Forgets the requests of steps that are over: those to come have others. */
void rill__reducer_on_reset(rill_reducer *);
void rill__reducer_on_free(rill_reducer *);

/* ---- reducer_options.c ---- */
/* The user's options: checked, copied, and with what 0 stands for. */
rill_status rill__reducer_take_options(rill_reducer *, const rill_reducer_options *);
void rill__reducer_free_options(rill_reducer *); /* also after a failure */
/* What all ranks must have alike, in one word. */
uint64_t rill__reducer_options_word(const rill_reducer *);

/* ---- reducer_select.c: the selection of a step ---- */
/* Whether there is such a selection in the reducer's space. */
rill_status rill__reducer_check_selection(rill_reducer *);
/* (Re)creates the selectors for the present k. */
rill_status rill__reducer_selectors(rill_reducer *);
void rill__reducer_selectors_free(rill_reducer *);
rill_status rill__reducer_ready_selectors(rill_reducer *); /* those of the next step */
/* The density or k of this step, by the warm-up. */
uint64_t rill__reducer_stage_k(const rill_reducer *);
/* selected = what this step sends; the residual is what it keeps. */
rill_status rill__reducer_select(rill_reducer *, const void *gradient);

/* ---- feedback.c: what was not delivered ---- */
/* After the call: the residual takes what was not delivered, the momentum forgets what was. */
rill_status rill__reducer_take_back(rill_reducer *);
/* After a call that delivered nothing: everything that was selected. */
void rill__reducer_take_all_back(rill_reducer *);

/* ---- undo.c: steps that failed, or are void ---- */
void rill__reducer_remember(rill_reducer *); /* before the step */
void rill__reducer_remember_selectors(rill_reducer *);
void rill__reducer_remember_memory(rill_reducer *);
/* What selectors and the algorithm carry is as before a step that does not count. */
void rill__reducer_restore(rill_reducer *, bool failed);
/* The call failed on all ranks: everything is as before it, and the gradient is in the residual. */
void rill__reducer_undo_failed(rill_reducer *);
/* The step is void on all ranks: everything is as before it, up to rounding. */
void rill__reducer_undo_void(rill_reducer *);
/* The update of a void step. */
void rill__reducer_write_nan(const rill_reducer *, const rill__target *);
/* The gradient of a step that could not even begin goes to the residual. */
void rill__reducer_keep_gradient(rill_reducer *, const void *gradient);

/* ---- reducer_load.c ---- */
/* What a reducer has of its communicator: taken out, so that it can be made anew; and freed. */
void rill__reducer_hide_state(rill_reducer *);
void rill__reducer_free_state(rill_reducer *);

/* ---- reducer_move.c: a rank is gone ---- */
/* Undoes a step that ended with RILL_ERR_PEER, and keeps what it takes to complete it after all. */
void rill__reducer_interrupt(rill_reducer *);
/* The step is complete on another rank, and its result in r->result: so it is here. */
rill_status rill__reducer_complete_late(rill_reducer *);
void rill__reducer_keep_last(rill_reducer *); /* the result of a step that is complete */
void rill__reducer_free_kept(rill_reducer *);
/* Whether ranks of its communicator can be gone without the others. */
static inline bool rill__reducer_can_lose(const rill_reducer *r) {
    return r->comm->engine.table->failed != NULL;
}

/* ---- reducer_choice.c: algorithm and way of sending ---- */
rill_status rill__reducer_resolve(rill_reducer *);
rill_options rill__reducer_call_options(const rill_reducer *);
/* select "auto": decides from the first gradient; collective. */
rill_status rill__reducer_decide(rill_reducer *, const void *gradient);

/* Whether a step is under way, or over and nobody has asked for its end: so that it is the caller's
 * doing, and not a thread's, when the reducer can be used again. */
static inline bool rill__reducer_is_busy(const rill_reducer *r) {
    const rill_request *q = r->request;
    if (rill__reducer_on_busy(r)) return true;
    return q && rill__task_shown(&q->task) != RILL__IDLE &&
           !atomic_load_explicit(&q->told, memory_order_relaxed);
}

/* Whether the reducer's calls are of the kind that gives top-k of the sum. */
static inline bool rill__reducer_is_topk(const rill_reducer *r) {
    return r->collective == RILL_REDUCER;
}

#endif
