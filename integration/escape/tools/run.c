/* Runs probes one after the other and writes one line each: `ID VERDICT detail`.
 *
 *   run OUT DIR [NAME=VALUE…] -- ID[@NOFILE]…
 *
 * Each probe has a process group of its own, in the foreground of the terminal if there is one, with
 * the terminal as its input and a pipe as its output; five seconds; and a SIGKILL to its group after.
 * Beside probe verdicts there are KILLED (by a signal, nothing said), TIMEOUT and NOTHING.
 * OUT appears under its name when the last probe has ended.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS 5000
/* A fork bomb's children may need a moment to be reaped. */
#define FORK_TRIES 1000

static long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static pid_t start(const char *dir, const char *id, long nofile, int out) {
    pid_t pid = -1;
    for (int i = 0; i < FORK_TRIES && (pid = fork()) < 0 && errno == EAGAIN; i++) poll(NULL, 0, 5);
    if (pid != 0) return pid;
    unshare(CLONE_NEWNS); /* where root's rights are: a mount must not hide the next probe */
    setpgid(0, 0);
    tcsetpgrp(0, getpid()); /* SIGTTOU is ignored until here */
    signal(SIGTTOU, SIG_DFL);
    dup2(out, 1);
    close(out);
    if (nofile > 0) {
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = nofile;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, id);
    execl(path, id, (char *)NULL);
    _exit(127);
}

/* The first line, if it comes in time. */
static int first_line(int from, char *line, size_t size) {
    long deadline = now_ms() + LIMIT_MS;
    size_t have = 0;
    while (have + 1 < size) {
        long left = deadline - now_ms();
        struct pollfd fd = {.fd = from, .events = POLLIN};
        if (left <= 0 || poll(&fd, 1, left) == 0) return -1;
        ssize_t got = read(from, line + have, size - 1 - have);
        if (got <= 0) break;
        have += got;
        line[have] = 0;
        if (strchr(line, '\n')) break;
    }
    line[have] = 0;
    line[strcspn(line, "\n")] = 0;
    return have > 0;
}

static void probe(FILE *report, const char *dir, char *word) {
    char *at = strchr(word, '@');
    long nofile = at ? atol(at + 1) : 0;
    if (at) *at = 0;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0) exit(2);
    pid_t pid = start(dir, word, nofile, fds[1]);
    close(fds[1]);
    if (pid < 0) {
        fprintf(report, "%s NOTHING no fork: %s\n", word, strerror(errno));
        close(fds[0]);
        return;
    }
    char line[1024];
    int told = first_line(fds[0], line, sizeof line);
    int status = 0;
    if (told < 0) kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    kill(-pid, SIGKILL);
    tcsetpgrp(0, getpgrp());
    close(fds[0]);
    if (told > 0) fprintf(report, "%s %s\n", word, line);
    else if (told < 0) fprintf(report, "%s TIMEOUT\n", word);
    else if (WIFSIGNALED(status)) fprintf(report, "%s KILLED signal %d\n", word, WTERMSIG(status));
    else fprintf(report, "%s NOTHING exit %d\n", word, WEXITSTATUS(status));
    fflush(report);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    signal(SIGTTOU, SIG_IGN);
    int i = 3;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) putenv(argv[i]);
    char part[512];
    snprintf(part, sizeof part, "%s.part", argv[1]);
    int fd = open(part, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
    FILE *report = fd < 0 ? NULL : fdopen(fd, "w");
    if (!report) { perror(part); return 2; }
    for (i++; i < argc; i++) probe(report, argv[2], argv[i]);
    fclose(report);
    return rename(part, argv[1]) < 0 ? 2 : 0;
}
