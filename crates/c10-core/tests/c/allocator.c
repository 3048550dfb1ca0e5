/* An allocator as PyTorch's CUDAPluggableAllocator loads one, over memory of two functions that the test gives. It writes
 * down what it is asked. Its hooks have torch's signatures; a C++ function object is passed as the ABI of C++ passes it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef void *stream_t;

struct log {
    int64_t allocs, frees, held, last_device, devices, resets, records, begins, ends, releases, taken_by_filter;
    double fraction;
    uint64_t last_stream, last_pool;
};

struct pool {
    uint64_t first, second;
};

/* std::function<bool(cudaStream_t)> of libstdc++. */
struct filter {
    void *functor[2];
    bool (*manage)(void *target, const void *source, int what);
    bool (*invoke)(const void *functor, stream_t *stream);
};

static void *(*take)(size_t bytes);
static void (*give)(void *address);
static struct log seen;
static struct filter filter;
static bool empty;

void plug_connect(void *(*take_)(size_t), void (*give_)(void *)) {
    take = take_;
    give = give_;
}

struct log plug_log(void) {
    return seen;
}

/* From now on there is no memory, or there is some again. */
void plug_empty(bool is_empty) {
    empty = is_empty;
}

void *plug_malloc(ssize_t bytes, int device, stream_t stream) {
    seen.last_device = device;
    seen.last_stream = (uint64_t)stream;
    if (filter.invoke && filter.invoke(&filter, &stream)) {
        seen.taken_by_filter++;
    }
    void *address = empty ? NULL : take((size_t)bytes);
    if (address) {
        seen.allocs++;
        seen.held += bytes;
    }
    return address;
}

void plug_free(void *address, ssize_t bytes, int device, stream_t stream) {
    (void)device;
    (void)stream;
    seen.frees++;
    seen.held -= bytes;
    give(address);
}

void plug_init(int devices) {
    seen.devices = devices;
}

void plug_reset(void) {
    seen.resets++;
}

void plug_fraction(double fraction, int device) {
    seen.fraction = fraction;
    seen.last_device = device;
}

void *plug_base(void *address, size_t *bytes) {
    *bytes = 1;
    return address;
}

void *plug_wrong_base(void *address, size_t *bytes) {
    *bytes = 1;
    return (char *)address + 512;
}

void plug_record(void *address, stream_t stream) {
    (void)address;
    seen.records++;
    seen.last_stream = (uint64_t)stream;
}

void plug_begin(int device, struct pool pool, struct filter *takes) {
    (void)device;
    seen.begins++;
    seen.last_pool = pool.second;
    takes->manage(&filter, takes, 2);
    filter.manage = takes->manage;
    filter.invoke = takes->invoke;
}

void plug_end(int device, struct pool pool) {
    (void)device;
    seen.ends++;
    seen.last_pool = pool.second;
    filter.manage(&filter, &filter, 3);
    filter.invoke = NULL;
}

void plug_release(int device, struct pool pool) {
    (void)device;
    seen.releases++;
    seen.last_pool = pool.second;
}
