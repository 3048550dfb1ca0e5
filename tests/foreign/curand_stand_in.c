/* What candle calls of cuRAND when it opens a device, for machines without cuRAND: generators can be made, set up and
 * destroyed. They draw nothing: a request for numbers is answered as one that failed. Only for the programs of this folder. */

#include <stdatomic.h>
#include <stddef.h>

typedef enum {
    SUCCESS = 0,
    NOT_INITIALIZED = 101,
    ALLOCATION_FAILED = 102,
    TYPE_ERROR = 103,
    INTERNAL_ERROR = 999,
} status;

/* CURAND_RNG_PSEUDO_DEFAULT, the only kind that candle asks for. */
#define PSEUDO_DEFAULT 100

struct generator {
    atomic_int lives;
    void *stream;
    unsigned long long seed, offset;
};

/* Every generator there can be, so that a handle can be looked at that names none or one that is gone. */
static struct generator all[64];
#define COUNT (sizeof all / sizeof *all)

static struct generator *find(const struct generator *handle) {
    for (size_t place = 0; place < COUNT; place++)
        if (handle == &all[place] && all[place].lives) return &all[place];
    return NULL;
}

status curandCreateGenerator(struct generator **place, int kind) {
    if (!place) return NOT_INITIALIZED;
    if (kind != PSEUDO_DEFAULT) return TYPE_ERROR;
    for (size_t next = 0; next < COUNT; next++) {
        if (atomic_exchange(&all[next].lives, 1)) continue;
        all[next].stream = NULL;
        all[next].seed = all[next].offset = 0;
        *place = &all[next];
        return SUCCESS;
    }
    return ALLOCATION_FAILED;
}

status curandDestroyGenerator(struct generator *handle) {
    struct generator *found = find(handle);
    if (!found) return NOT_INITIALIZED;
    found->lives = 0;
    return SUCCESS;
}

status curandSetStream(struct generator *handle, void *stream) {
    struct generator *found = find(handle);
    if (!found) return NOT_INITIALIZED;
    found->stream = stream;
    return SUCCESS;
}

status curandSetPseudoRandomGeneratorSeed(struct generator *handle, unsigned long long seed) {
    struct generator *found = find(handle);
    if (!found) return NOT_INITIALIZED;
    found->seed = seed;
    return SUCCESS;
}

status curandSetGeneratorOffset(struct generator *handle, unsigned long long offset) {
    struct generator *found = find(handle);
    if (!found) return NOT_INITIALIZED;
    found->offset = offset;
    return SUCCESS;
}

#define DRAWS_NOTHING(name) \
    status name(const struct generator *handle) { return find(handle) ? INTERNAL_ERROR : NOT_INITIALIZED; }

DRAWS_NOTHING(curandGenerateUniform)
DRAWS_NOTHING(curandGenerateUniformDouble)
DRAWS_NOTHING(curandGenerateNormal)
DRAWS_NOTHING(curandGenerateNormalDouble)
