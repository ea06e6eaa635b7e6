/* What any link must do by itself, without a communicator: each rank, in a thread or a fiber of its
 * own, calls talk and talk_gather. */
#ifndef RILL_TESTS_TALK_H
#define RILL_TESTS_TALK_H

#include "unit.h"

#include "link/link.h"

#include <stdlib.h>
#include <string.h>

enum { TALK_ROUNDS = 40, TALK_LARGE = 20000 };

static inline uint64_t talk_mix(uint64_t x) {
    x = (x ^ (x >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ (x >> 29);
}

/* Byte i of the message of that number from one rank to another. */
static inline unsigned char talk_content(int from, int to, int number, size_t i) {
    return (unsigned char)talk_mix((uint64_t)from * 31 + (uint64_t)to * 17 +
                                   (uint64_t)number * 101 + i);
}

static inline size_t talk_length_of(int from, int number) {
    return number % 7 == 3 ? TALK_LARGE : (size_t)(from * 5 + number) % 300;
}

static inline void talk_fill(unsigned char *at, int from, int to, int number) {
    for (size_t i = 0; i < talk_length_of(from, number); i++)
        at[i] = talk_content(from, to, number, i);
}

static inline void talk_check(const unsigned char *at, size_t bytes, int from, int to, int number) {
    assert_int_equal(bytes, talk_length_of(from, number));
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != talk_content(from, to, number, i)) fail_msg("byte %zu differs", i);
}

/* Every rank sends TALK_ROUNDS messages to every other, and receives what it is sent: of a tag of
 * the round from anyone, of tag 1 by source, and of tag 2 by posted receives. */
static inline void talk(rill__link *link) {
    const rill__link_table *t = link->table;
    int n = link->ranks, me = link->rank;
    unsigned char *out = malloc((size_t)n * 3 * TALK_LARGE), *in = malloc(TALK_LARGE);
    assert_non_null(out);
    assert_non_null(in);
    for (int number = 0; number < TALK_ROUNDS; number++) {
        rill__wire *wires = calloc((size_t)n * 3, sizeof *wires), posted = {0};
        assert_non_null(wires);
        int from = (me + n - 1) % n;
        assert_int_equal(t->post(link, from, 2, in, TALK_LARGE, &posted), RILL_OK);
        for (int i = 0; i < 3 * n; i++) {
            int to = i % n, tag = i / n;
            if (to == me || (tag == 2 && to != (me + 1) % n)) continue;
            talk_fill(out + (size_t)i * TALK_LARGE, me, to, number + 7 * tag);
            assert_ok(t->send(link, to, tag ? tag : 10 + number, out + (size_t)i * TALK_LARGE,
                              talk_length_of(me, number + 7 * tag), &wires[i]));
        }
        size_t bytes = 0;
        while (t->test(link, &posted, &bytes) == RILL_IN_PROGRESS)
            t->idle(link, 1);
        talk_check(in, bytes, from, me, number + 14);
        for (int left = n - 1; left;) {
            rill__arrival a;
            rill__wire wire = {0};
            if (t->probe(link, RILL__ANY, 10 + number, 1, &a) != RILL_OK) {
                t->idle(link, 1);
                continue;
            }
            assert_ok(t->receive(link, &a, 10 + number, in, true, &wire));
            assert_ok(rill__link_wait(link, &wire));
            talk_check(in, a.bytes, a.source, me, number);
            left--;
        }
        for (int source = 0; source < n; source++) {
            rill__arrival a;
            rill__wire wire = {0};
            if (source == me) continue;
            while (t->probe(link, source, 1, 1, &a) != RILL_OK)
                t->idle(link, 1);
            assert_int_equal(a.source, source);
            assert_ok(t->receive(link, &a, 1, in, false, &wire));
            assert_ok(rill__link_wait(link, &wire));
            talk_check(in, a.bytes, source, me, number + 7);
        }
        for (int i = 0; i < 3 * n; i++)
            assert_ok(rill__link_wait(link, &wires[i]));
        free(wires);
    }
    free(out);
    free(in);
}

static inline void talk_gather(rill__link *link) {
    int mine = link->rank * 3 + 1, all[64], word = link->rank == 2 ? 77 : 0;
    assert_ok(link->table->allgather(link, &mine, sizeof mine, all));
    for (int i = 0; i < link->ranks; i++)
        assert_int_equal(all[i], i * 3 + 1);
    if (link->ranks > 2) {
        assert_ok(link->table->bcast(link, &word, sizeof word, 2));
        assert_int_equal(word, 77);
    }
    rill_status worst;
    assert_ok(rill__link_worst(link, link->rank == 1 ? RILL_ERR_IO : RILL_OK, &worst));
    assert_int_equal(worst, link->ranks > 1 ? RILL_ERR_IO : RILL_OK);
}

#endif
