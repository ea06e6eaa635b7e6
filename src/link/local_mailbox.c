#include "link/local_mailbox.h"

#include <stdlib.h>
#include <string.h>

/* Tags of a call follow each other, and so do ranks. */
static size_t pair_hash(int source, int tag) {
    return (size_t)((uint32_t)source * 0x9e3779b1u ^ (uint32_t)tag * 0x85ebca6bu) >> 7;
}

static rill__mail_list *pair_list(rill__mailbox *box, int source, int tag) {
    return &box->pairs[pair_hash(source, tag) & (box->lists - 1)];
}

static rill__mail_list *tag_list(rill__mailbox *box, int tag) {
    return &box->tags[(unsigned)tag % RILL__TAG_LISTS];
}

static void append_pair(rill__mail_list *list, rill__local_message *m) {
    m->pair_next = NULL;
    m->pair_last = list->last;
    if (list->last) list->last->pair_next = m;
    else list->first = m;
    list->last = m;
}

static void append_tag(rill__mail_list *list, rill__local_message *m) {
    m->tag_next = NULL;
    m->tag_last = list->last;
    if (list->last) list->last->tag_next = m;
    else list->first = m;
    list->last = m;
}

void rill__mailbox_init(rill__mailbox *box) {
    memset(box, 0, sizeof *box);
    pthread_mutex_init(&box->lock, NULL);
    box->lists = RILL__PAIR_LISTS;
    box->pairs = box->own_pairs;
}

void rill__mailbox_destroy(rill__mailbox *box) {
    if (box->pairs != box->own_pairs) free(box->pairs);
    pthread_mutex_destroy(&box->lock);
}

/* Lists are short where there are many: without the memory for that they are long, which is slow
 * and no more. */
static void grow(rill__mailbox *box) {
    size_t lists = 4 * box->lists;
    rill__mail_list *pairs = calloc(lists, sizeof *pairs), *old = box->pairs;
    if (!pairs) return;
    size_t before = box->lists;
    box->pairs = pairs;
    box->lists = lists;
    for (size_t i = 0; i < before; i++)
        for (rill__local_message *m = old[i].first, *next; m; m = next) {
            next = m->pair_next;
            append_pair(pair_list(box, m->source, m->tag), m);
        }
    if (old != box->own_pairs) free(old);
}

bool rill__mailbox_put(rill__mailbox *box, rill__local_message *m) {
    rill__mailbox_lock(box);
    bool there = !box->gone;
    if (there) {
        size_t n = atomic_load_explicit(&box->n, memory_order_relaxed);
        if (n >= 4 * box->lists) grow(box);
        append_pair(pair_list(box, m->source, m->tag), m);
        append_tag(tag_list(box, m->tag), m);
        atomic_store_explicit(&box->n, n + 1, memory_order_release);
    }
    rill__mailbox_unlock(box);
    return there;
}

static rill__local_message *of_epoch(rill__mailbox *box, int epoch) {
    for (int i = 0; i < RILL__TAG_LISTS; i++)
        for (rill__local_message *m = box->tags[i].first; m; m = m->tag_next)
            if (m->tag / RILL__EPOCH_TAGS == epoch) return m;
    return NULL;
}

rill__local_message *rill__mailbox_find(rill__mailbox *box, int source, int tag) {
    rill__local_message *m;
    if (tag < 0) {
        m = of_epoch(box, RILL__ANY - tag);
    } else if (source == RILL__ANY) {
        m = tag_list(box, tag)->first;
        while (m && m->tag != tag)
            m = m->tag_next;
    } else {
        m = pair_list(box, source, tag)->first;
        while (m && (m->tag != tag || m->source != source))
            m = m->pair_next;
    }
    return m;
}

void rill__mailbox_remove(rill__mailbox *box, rill__local_message *m) {
    rill__mail_list *pair = pair_list(box, m->source, m->tag), *tag = tag_list(box, m->tag);
    if (m->pair_last) m->pair_last->pair_next = m->pair_next;
    else pair->first = m->pair_next;
    if (m->pair_next) m->pair_next->pair_last = m->pair_last;
    else pair->last = m->pair_last;
    if (m->tag_last) m->tag_last->tag_next = m->tag_next;
    else tag->first = m->tag_next;
    if (m->tag_next) m->tag_next->tag_last = m->tag_last;
    else tag->last = m->tag_last;
    size_t n = atomic_load_explicit(&box->n, memory_order_relaxed);
    atomic_store_explicit(&box->n, n - 1, memory_order_release);
}

rill__local_message *rill__mailbox_any(rill__mailbox *box) {
    for (int i = 0; i < RILL__TAG_LISTS; i++)
        if (box->tags[i].first) return box->tags[i].first;
    return NULL;
}
