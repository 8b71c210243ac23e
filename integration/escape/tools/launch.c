/* Becomes somebody who is careless, then runs a command: everything that must not reach a cage is here.
 *
 *   launch UID GID GROUPS DIRFD_FOLDER TTY -- CMD…
 *
 * GROUPS are supplementary groups, `1,2` or `-`. A folder stands open on descriptor 40, SIGPIPE and
 * SIGXFSZ are ignored, SIGUSR1 is blocked, a key is in the session keyring and one in the user's.
 * TTY `tty`: the command gets a terminal of its own, whose output is thrown away.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY_LIVES_S 120

static void die(const char *what) { perror(what); exit(2); }

static void become(uid_t uid, gid_t gid, char *groups) {
    gid_t list[16];
    int n = 0;
    for (char *g = strtok(groups, ","); g && *g != '-' && n < 16; g = strtok(NULL, ",")) list[n++] = atoi(g);
    if (setgroups(n, list) < 0) die("setgroups");
    if (setresgid(gid, gid, gid) < 0) die("setresgid");
    if (setresuid(uid, uid, uid) < 0) die("setresuid");
}

static void key(const char *name, int ring) {
    long id = syscall(SYS_add_key, "user", name, "hunter2", 7, ring);
    if (id < 0) { perror("add_key"); return; }
    syscall(SYS_keyctl, KEYCTL_SET_TIMEOUT, id, KEY_LIVES_S);
}

/* Reads the terminal empty until the command has ended. */
static int drain(int master, pid_t pid) {
    char buffer[65536];
    while (read(master, buffer, sizeof buffer) > 0) {}
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv) {
    if (argc < 8) return 2;
    int folder = open(argv[4], O_RDONLY | O_DIRECTORY);
    if (folder < 0) die(argv[4]);
    if (dup2(folder, 40) < 0) die("dup2");
    close(folder);
    become(atoi(argv[1]), atoi(argv[2]), argv[3]);
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    key("mews-sess-bait", KEY_SPEC_SESSION_KEYRING);
    key("mews-user-bait", KEY_SPEC_USER_KEYRING);
    int master = -1;
    pid_t pid = 0;
    if (strcmp(argv[5], "tty") == 0 && (pid = forkpty(&master, NULL, NULL, NULL)) < 0) die("forkpty");
    if (pid > 0) return drain(master, pid);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    execvp(argv[7], argv + 7);
    die(argv[7]);
}
