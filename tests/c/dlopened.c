/* A program that is not linked with the driver: it opens the library by name and asks it for its functions, as the
 * toolkit's runtime does. */

#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>

#include "driver.h"

typedef CUresult (*get_proc_address)(const char *symbol, void **address, int version, uint64_t flags, int *found);

static get_proc_address look_up;

/* Not cuGetErrorName of the header, which would have to be linked: `answered` is the only one to call it. */
CUresult cuGetErrorName(CUresult error, const char **name) {
    (void)error;
    (void)name;
    return CUDA_SUCCESS;
}

static void *function(const char *name, int version) {
    void *address = NULL;
    int found = -1;
    OK(look_up(name, &address, version, 0, &found));
    SO(address != NULL && found == 0);
    return address;
}

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    /* ISO C has no conversion from an object's address to a function's; POSIX promises that the bytes are the same. */
    *(void **)&look_up = dlsym(library, "cuGetProcAddress_v2");
    SO(look_up != NULL && dlsym(library, "cuNoSuchFunction") == NULL);

    CUresult (*init)(unsigned int), (*count)(int *), (*alloc)(CUdeviceptr *, size_t), (*retain)(CUcontext *, int);
    CUresult (*current)(CUcontext), (*release)(CUdeviceptr);
    *(void **)&init = function("cuInit", 2000);
    *(void **)&count = function("cuDeviceGetCount", 2000);
    *(void **)&retain = function("cuDevicePrimaryCtxRetain", 7000);
    *(void **)&current = function("cuCtxSetCurrent", 4000);
    *(void **)&alloc = function("cuMemAlloc", 3020);
    *(void **)&release = function("cuMemFree", 3020);

    int devices = 0;
    CUcontext context;
    CUdeviceptr memory = 0;
    OK(init(0));
    OK(count(&devices));
    SO(devices > 0);
    OK(retain(&context, 0));
    OK(current(context));
    OK(alloc(&memory, 1 << 20));
    SO(memory != 0);
    OK(release(memory));
    return 0;
}
