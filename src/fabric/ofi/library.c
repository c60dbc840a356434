/* libfabric, loaded when the first path between machines is opened: some of the libraries that it draws in measure
 * clocks for a fifth of a second and take over the signals SIGINT and SIGTERM when they are loaded, which no other
 * command should pay for. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "base/assert.h"
#include "fabric/ofi/ofi_priv.h"

#define LIBRARY "libfabric.so.1"

struct ash_libfabric ash_libfabric;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *handle; /* under lock; never closed: libraries that start threads cannot be */

/* ---- signals stay as they were ----------------------------------------------------------------------------------- */

static void *open_quietly(void)
{
    struct sigaction before[SIGSYS + 1];
    sigset_t all, mask;
    void *library;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &mask);
    for (int s = 1; s <= SIGSYS; s++)
        sigaction(s, NULL, &before[s]);
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    for (int s = 1; s <= SIGSYS; s++)
        if (s != SIGKILL && s != SIGSTOP) sigaction(s, &before[s], NULL);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    return library;
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* A program may run with a newer libfabric than the one whose headers it was built with, not with an older one: symbols
 * would be missing. */
static int check_version(uint32_t (*version)(void), struct ash_err *err)
{
    uint32_t found = version();

    if (FI_VERSION_GE(found, FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION))) return 0;
    return ash_err_set(err, -ENOTSUP, "%s here is version %u.%u, older than %d.%d, which this program was built for",
                       LIBRARY, FI_MAJOR(found), FI_MINOR(found), FI_MAJOR_VERSION, FI_MINOR_VERSION);
}

static int find_functions(void *library, struct ash_libfabric *out, struct ash_err *err)
{
    const struct {
        const char *name;
        void *to; /* a function pointer */
    } wanted[] = {{"fi_version", &out->version}, {"fi_getinfo", &out->getinfo}, {"fi_freeinfo", &out->freeinfo},
                  {"fi_dupinfo", &out->dupinfo}, {"fi_fabric", &out->fabric},   {"fi_strerror", &out->strerror}};

    for (size_t i = 0; i < ASH_COUNT(wanted); i++) {
        void *found = dlsym(library, wanted[i].name);

        if (found == NULL) return ash_err_set(err, -ENOTSUP, "%s has no %s", LIBRARY, wanted[i].name);
        *(void **)wanted[i].to = found;
    }
    return check_version(out->version, err);
}

static int load(const char *provider, struct ash_err *err)
{
    struct ash_libfabric found = {0};
    void *library;
    int rc;

    ash_ofi_prepare(provider);
    library = open_quietly();
    if (library == NULL)
        return ash_err_set(err, -ENOTSUP, "no libfabric for the path between machines: %s (Debian: libfabric1)",
                           dlerror());
    rc = find_functions(library, &found, err);
    if (rc < 0) return rc;
    ash_libfabric = found;
    handle = library;
    return 0;
}

int ash_ofi_load(const char *provider, struct ash_err *err)
{
    int rc = 0;

    pthread_mutex_lock(&lock);
    if (handle == NULL) rc = load(provider, err);
    pthread_mutex_unlock(&lock);
    return rc;
}
