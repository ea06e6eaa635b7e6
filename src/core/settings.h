/* The one table of settings: what each is called, what it may be, where it may come from.
 *
 * A setting is a field of public structs (rill_config, rill_options, rill_reducer_options), a key
 * of MPI_Info, and a variable of the environment; its row says which of these. Reading,
 * precedence, checks, the word that ranks compare, `rill info`, the reference and Python follow the
 * rows: a new setting is a row and who uses it.
 *
 * Nothing here knows of MPI: a source of texts is a function. */
#ifndef RILL_CORE_SETTINGS_H
#define RILL_CORE_SETTINGS_H

#include "core/core.h"

typedef enum rill__setting_kind {
    RILL__S_NAME, /* one of a list; const char * in the structs */
    RILL__S_TEXT, /* any; the same */
    RILL__S_PATH, /* of a file; the same */
    RILL__S_BOOL, /* int; negative in rill_config: unset */
    RILL__S_INT,  /* int; negative in rill_options: unset */
    RILL__S_SIZE, /* uint64_t; 0 in rill_config and rill_options: unset */
    RILL__S_REAL, /* double */
    RILL__S_REALS /* const double *, as many as another setting says */
} rill__setting_kind;

/* A field: [at, end) of its struct. end 0: the struct has none. */
typedef struct rill__field {
    uint16_t at, end;
} rill__field;

typedef struct rill__setting {
    const char *name;
    const char *value;       /* default, as text */
    const char *description; /* one line */
    rill__setting_kind kind;
    rill__field comm; /* in rill__defaults; what has a key has one */
    rill__field options, config, reducer;
    const char *environment, *info; /* variable and key; NULL: none */
    uint64_t initial; /* in rill__defaults, where nobody says anything; texts: empty */
    double zero;      /* what 0 stands for in rill_reducer_options; 0: itself */
    int slot; /* from 1: word of a checkpoint that keeps it; never changed, never reused; 0: none */
    bool own; /* ranks may have different ones */
    const char *(*names)(int i); /* NAME: those that are known; NULL past the end */
    bool (*holds)(double);       /* numbers that are right; NULL: all */
    const char *otherwise;       /* what is wrong with others: ends a sentence */
} rill__setting;

/* Those of rill_options come first. */
extern const rill__setting rill__setting_table[];
/* NULL past the end, or for an unknown name. */
const rill__setting *rill__setting_row(int i);
const rill__setting *rill__setting_named(const char *name);
const rill__setting *rill__setting_in_slot(int slot);
bool rill__setting_knows(const rill__setting *, const char *text);
/* Whether a value can be coded in so many bits (0: as it is). */
bool rill__setting_bits(double);

/* Most bytes of one MPI message where nobody sets it: counts are ints. */
#define RILL__SPLIT_LIMIT (UINT64_C(1) << 30)

/* Settings of a communicator, below the options of a call: rill_config over MPI_Info over rank 0's
 * environment, the same on all ranks. */
typedef struct rill__defaults {
    char algorithm[32]; /* empty: unset */
    char codec[32];
    char partition[32];
    int32_t value_bits; /* -1: unset */
    int32_t check;
    uint64_t expected_nnz;
    uint64_t block; /* 0: unset */
    uint64_t split_limit;
    uint64_t seed; /* of random rounding */
    int32_t allow_bits;
    int32_t progress_thread;
    char profile[1024];    /* a file, or "none"; empty: unset */
    char learn[16];        /* empty: unset */
    char hosts_of[48];     /* hosts to pretend; empty: those that there are */
    uint64_t shared_bytes; /* of each rank's shared memory; UINT64_MAX: unset */
    uint64_t read_bytes;   /* of a dense sum, at least; 0: none; UINT64_MAX: unset */
    uint64_t mail_bytes;   /* of a message through it; 0: none; UINT64_MAX: unset */
    int32_t timeout_s;     /* 0: none */
    int32_t minority;
    int32_t for_calls; /* 1: something of rill_options is set here */
} rill__defaults;

/* Where rank 0 looks settings up before its environment, such as an MPI_Info. *found is false
 * before, and true if it is there; value stays as it is else. */
typedef struct rill__info {
    rill_status (*look_up)(const void *context, const char *name, char *value, size_t length,
                           bool *found);
    const void *context;
} rill__info;
rill_status rill__setting_too_long(const char *name, size_t length);

/* What info (may be NULL) says; then the environment; then nobody. A text that is too long, or
 * should be a number and is none, is an error. */
rill_status rill__settings_read(const rill__info *, rill__defaults *);
/* What the struct sets goes over that. NULL: nothing. */
void rill__settings_take(const rill_config *, rill__defaults *);
rill_status rill__settings_check(const rill__defaults *);
/* Of this process's environment: settings that it alone has, such as the instruction set. */
rill_status rill__settings_check_own(void);
/* The options of a call (those that the caller's struct has, and sets) over the defaults. Where
 * there is nothing to merge the caller's struct is as good. */
void rill__settings_merge(const rill_options *, const rill__defaults *, rill_options *merged);
static inline bool rill__settings_need_merge(const rill_options *o, const rill__defaults *d) {
    return d->for_calls || o->size < sizeof *o;
}

/* A field as a word: integers with their sign, the bits of reals. Not of texts. */
uint64_t rill__setting_word(rill__setting_kind, const void *field);
double rill__setting_number(rill__setting_kind, uint64_t word); /* as a number */
/* FNV, for what ranks compare. */
#define RILL__HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t rill__hash_more(uint64_t hash, const void *bytes, size_t n);
/* Of all that ranks must have alike in these structs; REALS are left to the caller. */
uint64_t rill__settings_hash_options(uint64_t hash, const rill_options *);
uint64_t rill__settings_hash_reducer(uint64_t hash, const rill_reducer_options *);

#endif
