/* Preloaded: every stream is written to one byte at a time, so that readers find parts of what was
 * meant, and a socket is full after some 300 of them. Who can wait also reads and writes no more than
 * one byte a call, as it may by its manual page. Who cannot is told by epoll, edge by edge, and may
 * conclude from a short read that nothing is left: there a read takes what is there.
 * Streams are sockets of that kind, pipes and terminals; packets stay whole, and so do files. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

static int is_stream(int fd) {
    int before = errno, kind = 0;
    socklen_t size = sizeof kind;
    struct stat facts;
    int yes = getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) == 0
        ? kind == SOCK_STREAM
        : fstat(fd, &facts) == 0 && (S_ISFIFO(facts.st_mode) || S_ISCHR(facts.st_mode));
    errno = before;
    return yes;
}

static int waits(int fd, int flags) { return !(flags & MSG_DONTWAIT) && !(fcntl(fd, F_GETFL) & O_NONBLOCK); }

static size_t part(int fd, size_t size, int flags) {
    return size > 1 && is_stream(fd) && waits(fd, flags) ? 1 : size;
}

/* One call for each byte. A message's descriptors go with the first. */
static ssize_t bytewise(int fd, const struct msghdr *message, int flags) {
    struct msghdr one = *message;
    ssize_t sent = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        for (size_t at = 0; at < message->msg_iov[i].iov_len; at++) {
            struct iovec byte = {(char *) message->msg_iov[i].iov_base + at, 1};
            one.msg_iov = &byte, one.msg_iovlen = 1;
            int is_socket = flags >= 0;
            ssize_t done = is_socket ? REAL(sendmsg)(fd, &one, flags) : REAL(write)(fd, byte.iov_base, 1);
            if (done <= 0) return sent ? sent : done;
            one.msg_control = 0, one.msg_controllen = 0;
            if (++sent <= 64) sched_yield();
            if (waits(fd, is_socket ? flags : 0)) return sent;
        }
    }
    return sent;
}

static ssize_t parts(int fd, const struct iovec *list, size_t count, int flags) {
    struct msghdr message = {.msg_iov = (struct iovec *) list, .msg_iovlen = count};
    return bytewise(fd, &message, flags);
}

ssize_t read(int fd, void *bytes, size_t size) { return REAL(read)(fd, bytes, part(fd, size, 0)); }

ssize_t recv(int fd, void *bytes, size_t size, int flags) {
    return REAL(recv)(fd, bytes, part(fd, size, flags), flags);
}

ssize_t recvfrom(int fd, void *bytes, size_t size, int flags, struct sockaddr *from, socklen_t *length) {
    return REAL(recvfrom)(fd, bytes, part(fd, size, flags), flags, from, length);
}

ssize_t write(int fd, const void *bytes, size_t size) {
    struct iovec one = {(void *) bytes, size};
    return size && is_stream(fd) ? parts(fd, &one, 1, -1) : REAL(write)(fd, bytes, size);
}

ssize_t writev(int fd, const struct iovec *list, int count) {
    return is_stream(fd) ? parts(fd, list, count, -1) : REAL(writev)(fd, list, count);
}

ssize_t send(int fd, const void *bytes, size_t size, int flags) {
    struct iovec one = {(void *) bytes, size};
    return size && is_stream(fd) ? parts(fd, &one, 1, flags) : REAL(send)(fd, bytes, size, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    return is_stream(fd) ? bytewise(fd, message, flags) : REAL(sendmsg)(fd, message, flags);
}
