/* Copies past the caches: what is written once and read by nobody soon need not be read into the
 * caches first, and leaves them to others. */
#include "space/space.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

void rill__copy_past(void *into, const void *source, size_t bytes) {
    char *to = into;
    const char *from = source;
#ifdef __SSE2__
    size_t head = rill__min_u64(bytes, (16 - (uintptr_t)to % 16) % 16);
    memcpy(to, from, head);
    size_t at = head;
    for (; at + 64 <= bytes; at += 64)
        for (int i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)(void *)(to + at + 16 * i),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + at + 16 * i)));
    memcpy(to + at, from + at, bytes - at);
#else
    memcpy(to, from, bytes);
#endif
}

void rill__copied_past(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}
