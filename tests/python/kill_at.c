/* Loaded with LD_PRELOAD: kills the process (SIGKILL) at one exact moment of its work with files. KILL_AT is "PART COUNT PHASE": at the
   COUNT-th call that touches a file whose path contains PART, before or after the call is made. The path that counts is that of the file
   itself, also while it still has its temporary name. Writes are cut in the middle. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char part[256], phase[16];
static long countdown = -1;

__attribute__((constructor)) static void read_order(void) {
    const char* order = getenv("KILL_AT");
    if (order && sscanf(order, "%255s %ld %15s", part, &countdown, phase) != 3) countdown = -1;
}

/* Whether this call is the one. */
static int is_moment(const char* path) {
    if (countdown < 0 || !path || !strstr(path, part)) return 0;
    return __atomic_sub_fetch(&countdown, 1, __ATOMIC_SEQ_CST) == 0;
}
static int is_moment_of(int descriptor) {
    char link[64], path[4096];
    if (countdown < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return is_moment(path);
}
static void die(void) { raise(SIGKILL); }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define AROUND(moment, call)                        \
    const int now = (moment);                       \
    if (now && strcmp(phase, "before") == 0) die(); \
    const __typeof__(call) result = (call);         \
    if (now) die();                                 \
    return result

ssize_t write(int descriptor, const void* data, size_t size) {
    if (descriptor <= 2) return REAL(write)(descriptor, data, size);
    if (is_moment_of(descriptor)) {
        if (strcmp(phase, "before") != 0) REAL(write)(descriptor, data, size / 2);
        die();
    }
    return REAL(write)(descriptor, data, size);
}
int fsync(int descriptor) { AROUND(is_moment_of(descriptor), REAL(fsync)(descriptor)); }
int rename(const char* from, const char* to) { AROUND(is_moment(to), REAL(rename)(from, to)); }
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
    AROUND(is_moment(to), REAL(renameat2)(a, from, b, to, flags));
}
int link(const char* from, const char* to) { AROUND(is_moment(to), REAL(link)(from, to)); }
int unlink(const char* path) { AROUND(is_moment(path), REAL(unlink)(path)); }

static int with_mode(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0; }
int open(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const int mode = with_mode(flags, rest);
    va_end(rest);
    if (!(flags & O_CREAT)) return REAL(open)(path, flags, mode);
    AROUND(is_moment(path), REAL(open)(path, flags, mode));
}
int open64(const char* path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const int mode = with_mode(flags, rest);
    va_end(rest);
    if (!(flags & O_CREAT)) return REAL(open64)(path, flags, mode);
    AROUND(is_moment(path), REAL(open64)(path, flags, mode));
}
