/* A disk that fails on demand, for any program that is started with LD_PRELOAD=shim.so.
 *
 * Files under the directory CRASH_DISK are the disk. Every call that changes one of them is a crash point; at the n-th
 * (CRASH_POINT, from 1) the shim does what CRASH_MODE says:
 *
 *   kill          SIGKILL before the call
 *   torn          write a part of the buffer, then SIGKILL                        (counts writes only)
 *   eio           fail once with EIO                                              (counts everything but close)
 *   eio-ever      ... and every such call after it
 *   enospc        fail once with ENOSPC, every other time after a short write     (counts what may need room)
 *   enospc-ever   ... and every such call after it
 *   record        never fail, but log every call with its bytes
 *   record-file   the same, and fail once with EIO                                (counts fsync of files)
 *   record-folder the same, and fail once with EIO                                (counts fsync of the directory)
 *
 * What was struck, or in the record modes everything, is logged to CRASH_LOG. Calls on CRASH_WITNESS are logged in
 * these modes, so that the order of acknowledgements and disk writes is known; they are never crash points.
 *
 * The calls on watched files are made one at a time, under a lock, so the log is the order in which they happened.
 * A process may be forked from one that was not armed and arm itself: set the variables and call crash_arm().
 *
 * Not watched: reads, and memory maps (SQLite maps only its -shm file, which holds nothing durable).
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum op { OPEN = 1, WRITE, TRUNCATE, ALLOCATE, SYNC, UNLINK, RENAME, LINK, CLOSE };
enum mode { OFF, RECORD, RECORD_FILE, RECORD_FOLDER, KILL, TORN, EIO_ONCE, EIO_EVER, ENOSPC_ONCE, ENOSPC_EVER };
enum place { ELSEWHERE, DISK, WITNESS };

static const char *const MODES[] = {
    "off", "record", "record-file", "record-folder", "kill", "torn", "eio", "eio-ever", "enospc", "enospc-ever"};

#define BIT(op) (1u << (op))
static const unsigned COUNTED[] = {
    [OFF] = 0,
    [RECORD] = 0,
    [RECORD_FILE] = BIT(SYNC),
    [RECORD_FOLDER] = BIT(SYNC),
    [KILL] = ~0u,
    [TORN] = BIT(WRITE),
    [EIO_ONCE] = ~BIT(CLOSE),
    [EIO_EVER] = ~BIT(CLOSE),
    [ENOSPC_ONCE] = BIT(OPEN) | BIT(WRITE) | BIT(TRUNCATE) | BIT(ALLOCATE) | BIT(SYNC) | BIT(RENAME) | BIT(LINK),
    [ENOSPC_EVER] = BIT(OPEN) | BIT(WRITE) | BIT(TRUNCATE) | BIT(ALLOCATE) | BIT(SYNC) | BIT(RENAME) | BIT(LINK),
};

/* One entry of the log; the path and then the data follow it. Little-endian, as written by x86 and ARM. */
struct entry {
    uint32_t op;
    int32_t handle;   /* one per open(), never used again */
    int64_t offset;   /* of a write; for open: 1 when the file was created */
    int64_t length;   /* of the data that follows; for truncate and allocate: the size */
    int32_t error;    /* errno, or 0 */
    uint32_t path_length;
};

enum { MAX_FD = 4096 };
static struct { enum place place; int32_t handle; char path[256]; } watched[MAX_FD];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum mode mode = OFF;
static char disk[4096], witness[4096];
static int log_fd = -1;
static long point, met;
static int short_write_before;
static uint64_t dice;
static int32_t last_handle;

static int records(void)
{
    return mode >= RECORD && mode <= RECORD_FOLDER;
}

/* -- the real calls */

#define REAL(name) static __typeof__(&name) real_##name
REAL(open); REAL(open64); REAL(openat); REAL(openat64);
REAL(write); REAL(pwrite); REAL(pwrite64);
REAL(ftruncate); REAL(ftruncate64); REAL(posix_fallocate); REAL(posix_fallocate64);
REAL(fsync); REAL(fdatasync); REAL(unlink); REAL(rename); REAL(link); REAL(close);

static void find_real_calls(void)
{
#define FIND(name) real_##name = dlsym(RTLD_NEXT, #name)
    FIND(open); FIND(open64); FIND(openat); FIND(openat64);
    FIND(write); FIND(pwrite); FIND(pwrite64);
    FIND(ftruncate); FIND(ftruncate64); FIND(posix_fallocate); FIND(posix_fallocate64);
    FIND(fsync); FIND(fdatasync); FIND(unlink); FIND(rename); FIND(link); FIND(close);
}

/* -- arming */

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

__attribute__((visibility("default"))) void crash_arm(void)
{
    mode = OFF;
    for (unsigned i = 0; i < sizeof MODES / sizeof *MODES; i++)
        if (strcmp(setting("CRASH_MODE"), MODES[i]) == 0)
            mode = i;
    if (mode == OFF)
        return;
    snprintf(disk, sizeof disk, "%s", setting("CRASH_DISK"));
    snprintf(witness, sizeof witness, "%s", setting("CRASH_WITNESS"));
    point = atol(setting("CRASH_POINT"));
    dice = strtoull(setting("CRASH_SEED"), NULL, 10);
    log_fd = real_open(setting("CRASH_LOG"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

__attribute__((constructor)) static void begin(void)
{
    find_real_calls();
    crash_arm();
}

static uint64_t throw_dice(uint64_t sides)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (dice >> 33) % sides;
}

/* -- which files are watched */

static enum place place_of(const char *path)
{
    if (mode == OFF || !path)
        return ELSEWHERE;
    size_t length = strlen(disk);
    if (length && strncmp(path, disk, length) == 0 && (path[length] == '/' || path[length] == 0))
        return DISK;
    if (records() && witness[0] && strcmp(path, witness) == 0)
        return WITNESS;
    return ELSEWHERE;
}

static enum place place_of_fd(int fd)
{
    return mode != OFF && fd >= 0 && fd < MAX_FD ? watched[fd].place : ELSEWHERE;
}

/* -- the log */

static void put(const void *data, size_t size)
{
    for (const char *at = data; size > 0;) {
        ssize_t done = real_write(log_fd, at, size);
        if (done <= 0)
            abort(); /* a harness that cannot keep its log must not go on */
        at += done;
        size -= (size_t)done;
    }
}

static void keep(enum op op, int32_t handle, int64_t offset, int64_t length, int error, const char *path, const void *data)
{
    int saved = errno;
    struct entry entry = {op, handle, offset, length, error, path ? (uint32_t)strlen(path) : 0};
    put(&entry, sizeof entry);
    put(path, entry.path_length);
    if (data)
        put(data, (size_t)length);
    errno = saved;
}

/* -- what happens at a crash point */

enum fate { GO, FAIL, PART };

static void die(void)
{
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Count this call. Returns what to do with it, FAIL with errno set; does not return if the process is to die first. */
static enum fate meet(enum op op, enum place place, const char *path)
{
    if (mode == OFF || place != DISK || !(COUNTED[mode] & BIT(op)))
        return GO;
    if (records() && (mode == RECORD_FOLDER) != (strcmp(path, disk) == 0))
        return GO;
    if (short_write_before && op == WRITE) {
        short_write_before = 0;
        errno = ENOSPC;
        return FAIL;
    }
    met++;
    int ever = mode == EIO_EVER || mode == ENOSPC_EVER;
    if (met < point || (met > point && !ever))
        return GO;
    if (met == point && !records())
        keep(op, 0, 0, 0, 0, path, NULL);
    if (mode == KILL)
        die();
    if (mode == TORN || (mode == ENOSPC_ONCE && op == WRITE && throw_dice(2)))
        return PART;
    errno = mode == ENOSPC_ONCE || mode == ENOSPC_EVER ? ENOSPC : EIO;
    return FAIL;
}

/* -- the calls */

typedef int opener(const char *path, int flags, mode_t permissions);

static int watched_open(opener *how, const char *path, int flags, mode_t permissions)
{
    enum place place = place_of(path);
    if (place == ELSEWHERE)
        return how(path, flags, permissions);
    pthread_mutex_lock(&lock);
    int created = (flags & O_CREAT) && access(path, F_OK) != 0;
    int needs_no_room = !created && (mode == ENOSPC_ONCE || mode == ENOSPC_EVER);
    int fd = -1;
    if (needs_no_room || meet(OPEN, place, path) != FAIL)
        fd = how(path, flags, permissions);
    if (fd >= MAX_FD)
        abort();
    if (fd >= 0) {
        watched[fd].place = place;
        watched[fd].handle = ++last_handle;
        snprintf(watched[fd].path, sizeof watched[fd].path, "%s", path);
        if (records()) {
            keep(OPEN, last_handle, created, 0, 0, path, NULL);
            if (flags & O_TRUNC)
                keep(TRUNCATE, last_handle, 0, 0, 0, NULL, NULL);
        }
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static int open_here(const char *path, int flags, mode_t permissions)
{
    return real_open64(path, flags, permissions);
}

#define MODE_ARGUMENT(permissions, flags)            \
    mode_t permissions = 0;                          \
    if ((flags) & (O_CREAT | O_TMPFILE)) {           \
        va_list rest;                                \
        va_start(rest, flags);                       \
        permissions = va_arg(rest, mode_t);          \
        va_end(rest);                                \
    }

int open(const char *path, int flags, ...)
{
    MODE_ARGUMENT(permissions, flags);
    return watched_open(open_here, path, flags, permissions);
}

int open64(const char *path, int flags, ...)
{
    MODE_ARGUMENT(permissions, flags);
    return watched_open(open_here, path, flags, permissions);
}

int openat(int directory, const char *path, int flags, ...)
{
    MODE_ARGUMENT(permissions, flags);
    if (directory == AT_FDCWD || path[0] == '/')
        return watched_open(open_here, path, flags, permissions);
    return real_openat(directory, path, flags, permissions);
}

int openat64(int directory, const char *path, int flags, ...)
{
    MODE_ARGUMENT(permissions, flags);
    if (directory == AT_FDCWD || path[0] == '/')
        return watched_open(open_here, path, flags, permissions);
    return real_openat64(directory, path, flags, permissions);
}

/* `offset` is where to write, or -1 for the file's position. */
static ssize_t watched_write(int fd, const void *data, size_t size, off64_t offset)
{
    enum place place = place_of_fd(fd);
    if (place == ELSEWHERE)
        return offset < 0 ? real_write(fd, data, size) : real_pwrite64(fd, data, size, offset);
    pthread_mutex_lock(&lock);
    ssize_t done = -1;
    enum fate fate = meet(WRITE, place, watched[fd].path);
    if (fate != FAIL) {
        size_t part = fate == PART && size > 0 ? throw_dice(size) : size;
        if (fate == PART && mode == ENOSPC_ONCE) {
            part += part == 0;
            short_write_before = part < size;
        }
        done = offset < 0 ? real_write(fd, data, part) : real_pwrite64(fd, data, part, offset);
        if (fate == PART && mode == TORN)
            die();
    }
    if (records() && done >= 0) {
        off64_t began = offset < 0 ? lseek64(fd, 0, SEEK_CUR) - done : offset;
        keep(WRITE, watched[fd].handle, began, done, 0, NULL, data);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t write(int fd, const void *data, size_t size)
{
    return watched_write(fd, data, size, -1);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return watched_write(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    return watched_write(fd, data, size, offset);
}

/* Calls on an open file that move no data: `CALL` is made unless the shim decides otherwise. */
#define ON_FD(op, fd, size, CALL)                                                       \
    enum place place = place_of_fd(fd);                                                 \
    if (place == ELSEWHERE)                                                             \
        return CALL;                                                                    \
    pthread_mutex_lock(&lock);                                                          \
    int32_t handle = watched[fd].handle;                                                \
    int result = meet(op, place, watched[fd].path) == FAIL ? -1 : CALL;                             \
    if (records())                                                                      \
        keep(op, handle, 0, size, result == 0 ? 0 : errno, NULL, NULL);                 \
    pthread_mutex_unlock(&lock)

int ftruncate(int fd, off_t size)
{
    ON_FD(TRUNCATE, fd, size, real_ftruncate(fd, size));
    return result;
}

int ftruncate64(int fd, off64_t size)
{
    ON_FD(TRUNCATE, fd, size, real_ftruncate64(fd, size));
    return result;
}

int fsync(int fd)
{
    ON_FD(SYNC, fd, 0, real_fsync(fd));
    return result;
}

int fdatasync(int fd)
{
    ON_FD(SYNC, fd, 0, real_fdatasync(fd));
    return result;
}

int close(int fd)
{
    ON_FD(CLOSE, fd, 0, (watched[fd].place = ELSEWHERE, real_close(fd)));
    return result;
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
    ON_FD(ALLOCATE, fd, offset + size, real_posix_fallocate(fd, offset, size));
    return result < 0 ? errno : result; /* this one returns its error */
}

int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    ON_FD(ALLOCATE, fd, offset + size, real_posix_fallocate64(fd, offset, size));
    return result < 0 ? errno : result;
}

/* Calls on directory entries. The new name of a rename or a link goes into the log as data. */
#define ON_PATH(op, path, to, CALL)                                                                     \
    enum place place = place_of(path);                                                                  \
    if (place == ELSEWHERE)                                                                             \
        return CALL;                                                                                    \
    pthread_mutex_lock(&lock);                                                                          \
    int result = meet(op, place, path) == FAIL ? -1 : CALL;                                             \
    if (records() && result == 0)                                                                       \
        keep(op, 0, 0, (int64_t)strlen(to), 0, path, to);                                              \
    pthread_mutex_unlock(&lock);                                                                        \
    return result

int unlink(const char *path)
{
    ON_PATH(UNLINK, path, "", real_unlink(path));
}

int rename(const char *from, const char *to)
{
    ON_PATH(RENAME, from, to, real_rename(from, to));
}

int link(const char *from, const char *to)
{
    ON_PATH(LINK, from, to, real_link(from, to));
}
