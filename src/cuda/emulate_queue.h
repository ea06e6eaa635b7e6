/* Streams, events and memory of the emulated device (emulate_queue.cpp).
 *
 * What is given to a stream waits there in order. It runs as soon as it can be; or, where the
 * emulation is late (RILL_EMULATE_LATE=1), one piece at a time and only while somebody asks for an
 * event or waits for a stream: so who forgot to wait finds old data. From the first stream on that
 * waits for a word of the host's a thread asks now and then, too. With RILL_EMULATE_PROTECT=1
 * device memory can be touched by that device's work alone: any other touch is a SIGSEGV.
 * RILL_EMULATE_DEVICES: up to 4; each thread has a current one, as in CUDA. */
#ifndef RILL_CUDA_EMULATE_QUEUE_H
#define RILL_CUDA_EMULATE_QUEUE_H

#include <cstddef>
#include <cstdint>
#include <functional>

namespace emulate {
int enqueue(void *stream, const std::function<int()> &work);

int devices();
int device_get();
int device_set(int device);
int adopt(int device);
int allocate(size_t bytes, void **);
int memory_used(size_t *bytes);
int release(void *);
int allocate_on(size_t bytes, void **, void *stream);
int release_on(void *, void *stream);
int allocate_host(size_t bytes, void **);
int release_host(void *);
int device_of(const void *, int *device);
int range_of(const void *, const void **start, size_t *bytes);
int copy(void *to, const void *from, size_t bytes, void *stream);
int fill(void *to, int byte, size_t bytes, void *stream);
int stream_create(void **);
int stream_free(void *);
int stream_wait(void *);
int stream_capturing(void *, int *);
int event_create(void **);
int event_free(void *);
int event_record(void *event, void *stream);
int event_done(void *event, int *done);
int stream_wait_event(void *stream, void *event);
int stream_hold(const uint32_t *word, uint32_t number, void *stream);
} // namespace emulate

#endif
