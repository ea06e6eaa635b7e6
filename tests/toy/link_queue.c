/* queue: a toy that shows what a link needs: a file such as this. Ranks of one process, one lock,
 * one list of messages, none of which is copied on the way: a send is through when its receiver has
 * taken the bytes. It has nothing that a link may lack (wait, help, leave, shared memory), and
 * messages are short, so that long ones come in parts. */
#include "link/link.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A send, or a posted receive. It is in a list until the two have met, and freed by who started it.
 */
typedef struct operation {
    struct operation *next;
    int source, to, tag;
    const void *data;
    void *into;
    size_t bytes, room;
    bool through;
} operation;

typedef struct queue_group {
    pthread_mutex_t lock;
    pthread_barrier_t all_here;
    operation *sends, *posts; /* in order */
    const void **brought;     /* by each rank to a collective */
    int open;
} queue_group;

typedef struct queue_link {
    rill__link link; /* first */
    queue_group *group;
} queue_link;

static queue_group *group_of(rill__link *link) { return ((queue_link *)link)->group; }

/* Where the first that fits hangs, or the end of the list. */
static operation **find(operation **at, int source, int to, int tag) {
    while (*at && ((*at)->to != to || (source != RILL__ANY && (*at)->source != source) ||
                   (tag != RILL__ANY && (*at)->tag != tag)))
        at = &(*at)->next;
    return at;
}

static operation *unlink_at(operation **at) {
    operation *one = *at;
    *at = one->next;
    return one;
}

static void hand_over(operation *send, operation *post) {
    size_t bytes = send->bytes < post->room ? send->bytes : post->room;
    if (bytes) memcpy(post->into, send->data, bytes);
    post->bytes = send->bytes;
    send->through = post->through = true;
}

static rill_status start(rill__link *link, operation given, bool sends, rill__wire *wire) {
    queue_group *group = group_of(link);
    operation *one = malloc(sizeof *one);
    wire->word = 0;
    if (!one) return rill__fail(RILL_ERR_MEMORY, "out of memory for a message");
    *one = given;
    wire->word = (uint64_t)(uintptr_t)one;
    operation **mine = sends ? &group->sends : &group->posts;
    operation **others = sends ? &group->posts : &group->sends;
    pthread_mutex_lock(&group->lock);
    operation **met = find(others, one->source, one->to, one->tag);
    if (*met) {
        operation *other = unlink_at(met);
        hand_over(sends ? one : other, sends ? other : one);
    } else {
        while (*mine)
            mine = &(*mine)->next;
        *mine = one;
    }
    pthread_mutex_unlock(&group->lock);
    return RILL_OK;
}

static rill_status queue_send(rill__link *link, int to, int tag, const void *data, size_t bytes,
                              rill__wire *wire) {
    operation one = {.source = link->rank, .to = to, .tag = tag, .data = data, .bytes = bytes};
    return start(link, one, true, wire);
}

static rill_status queue_post(rill__link *link, int source, int tag, void *into, size_t room,
                              rill__wire *wire) {
    operation one = {.source = source, .to = link->rank, .tag = tag, .into = into, .room = room};
    return start(link, one, false, wire);
}

static rill_status queue_probe(rill__link *link, int source, int tag, int tries,
                               rill__arrival *arrival) {
    queue_group *group = group_of(link);
    (void)tries;
    pthread_mutex_lock(&group->lock);
    const operation *one = *find(&group->sends, source, link->rank, tag);
    if (one)
        *arrival = (rill__arrival){one->source, one->tag, one->bytes, (uint64_t)(uintptr_t)one};
    pthread_mutex_unlock(&group->lock);
    return one ? RILL_OK : RILL_IN_PROGRESS;
}

static rill_status queue_receive(rill__link *link, const rill__arrival *arrival, int tag,
                                 void *into, bool soon, rill__wire *wire) {
    queue_group *group = group_of(link);
    operation post = {.into = into, .room = into ? arrival->bytes : 0};
    (void)tag, (void)soon;
    wire->word = 0;
    pthread_mutex_lock(&group->lock);
    operation **at = &group->sends;
    while ((uint64_t)(uintptr_t)*at != arrival->word)
        at = &(*at)->next;
    hand_over(unlink_at(at), &post);
    pthread_mutex_unlock(&group->lock);
    return RILL_OK;
}

static rill_status queue_test(rill__link *link, rill__wire *wire, size_t *bytes) {
    queue_group *group = group_of(link);
    operation *one = (operation *)(uintptr_t)wire->word;
    if (!one) return RILL_OK;
    pthread_mutex_lock(&group->lock);
    bool through = one->through;
    pthread_mutex_unlock(&group->lock);
    if (!through) return RILL_IN_PROGRESS;
    bool cut = one->into && one->bytes > one->room;
    if (bytes) *bytes = one->bytes;
    free(one);
    wire->word = 0;
    return cut ? rill__fail(RILL_ERR_MESSAGE, "a message was cut") : RILL_OK;
}

static void queue_cancel(rill__link *link, rill__wire *wire, bool *came) {
    queue_group *group = group_of(link);
    operation *one = (operation *)(uintptr_t)wire->word;
    *came = false;
    if (!one) return;
    pthread_mutex_lock(&group->lock);
    *came = one->through;
    for (operation **at = &group->posts; *at; at = &(*at)->next)
        if (*at == one) {
            unlink_at(at);
            break;
        }
    pthread_mutex_unlock(&group->lock);
    free(one);
    wire->word = 0;
}

static rill_status queue_allgather(rill__link *link, const void *mine, size_t bytes, void *all) {
    queue_group *group = group_of(link);
    group->brought[link->rank] = mine;
    pthread_barrier_wait(&group->all_here);
    for (int i = 0; i < link->ranks; i++)
        memcpy((char *)all + (size_t)i * bytes, group->brought[i], bytes);
    pthread_barrier_wait(&group->all_here);
    return RILL_OK;
}

static rill_status queue_bcast(rill__link *link, void *data, size_t bytes, int root) {
    queue_group *group = group_of(link);
    group->brought[link->rank] = data;
    pthread_barrier_wait(&group->all_here);
    if (link->rank != root) memcpy(data, group->brought[root], bytes);
    pthread_barrier_wait(&group->all_here);
    return RILL_OK;
}

static double queue_clock(rill__link *link) {
    struct timespec now;
    (void)link;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void queue_idle(rill__link *link, unsigned polls) {
    (void)link, (void)polls;
    sched_yield();
}

/* A message that is left is an error: the engine takes in all of them before. */
static rill_status queue_close(rill__link *link) {
    queue_group *group = group_of(link);
    free(link->values);
    free(link);
    pthread_mutex_lock(&group->lock);
    bool last = --group->open == 0, left = last && (group->sends || group->posts);
    pthread_mutex_unlock(&group->lock);
    if (!last) return RILL_OK;
    pthread_mutex_destroy(&group->lock);
    pthread_barrier_destroy(&group->all_here);
    free(group->brought);
    free(group);
    return left ? rill__fail(RILL_ERR_STATE, "a message has not been received") : RILL_OK;
}

static const rill__link_table queue_table = {
    .name = "queue",
    .send = queue_send,
    .probe = queue_probe,
    .receive = queue_receive,
    .post = queue_post,
    .test = queue_test,
    .cancel = queue_cancel,
    .allgather = queue_allgather,
    .bcast = queue_bcast,
    .clock = queue_clock,
    .idle = queue_idle,
    .close = queue_close,
};

/* One link for each rank. False: there is no memory, and no link. */
static bool queue_create(int ranks, rill__link **links) {
    queue_group *group = calloc(1, sizeof *group);
    bool good = group && (group->brought = calloc((size_t)ranks, sizeof *group->brought)) != NULL;
    for (int i = 0; i < ranks; i++) {
        queue_link *l = calloc(1, sizeof *l);
        double *values = calloc((size_t)ranks * RILL__LINK_VALUES, sizeof *values);
        links[i] = l ? &l->link : NULL;
        good = good && l && values;
        if (!l) {
            free(values);
            continue;
        }
        l->group = group;
        l->link = (rill__link){.table = &queue_table,
                               .rank = i,
                               .ranks = ranks,
                               .values = values,
                               .threads = true,
                               .ordered_posts = true,
                               .message_limit = 2048,
                               .patience = 0.2};
    }
    if (good) {
        group->open = ranks;
        pthread_mutex_init(&group->lock, NULL);
        pthread_barrier_init(&group->all_here, NULL, (unsigned)ranks);
        return true;
    }
    for (int i = 0; i < ranks; i++) {
        if (links[i]) free(links[i]->values);
        free(links[i]);
    }
    if (group) free(group->brought);
    free(group);
    return false;
}
