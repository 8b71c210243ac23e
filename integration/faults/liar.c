/* A bwrap that leaves out or weakens one mount of a cage, and is silent about it. LIE says which; 0 is
 * none. The suite `guards` mounts it over /usr/bin/bwrap, and the real one over REAL, in a mount
 * namespace of its own: mews has to find out. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char in[1 << 20], out[1 << 20];
static size_t length;

static void keep(const char *word) {
    size_t size = strlen(word) + 1;
    if (length + size > sizeof out) _exit(1);
    memcpy(out + length, word, size);
    length += size;
}

static int ends(const char *word, const char *end) {
    size_t a = strlen(word), b = strlen(end);
    return a >= b && strcmp(word + a - b, end) == 0;
}

static void lie(int fd) {
    size_t size = 0;
    ssize_t got;
    while ((got = read(fd, in + size, sizeof in - size)) > 0) size += (size_t)got;
    char *words[16384];
    int count = 0;
    for (char *at = in; at < in + size && count < 16000; at += strlen(at) + 1) words[count++] = at;
    for (int i = count; i < count + 8; i++) words[i] = "";
    for (int i = 0; i < count; i++) {
        /* a hidden file is not hidden */
        if (LIE == 1 && !strcmp(words[i], "--perms") && ends(words[i + 4], "/.env")) { i += 4; continue; }
        /* a protected file can be written */
        if (LIE == 2 && !strcmp(words[i], "--ro-bind") && ends(words[i + 2], "/.git/config")) { keep("--bind"); continue; }
        /* a protected folder is no mount */
        if (LIE == 3 && !strcmp(words[i], "--ro-bind") && ends(words[i + 2], "/.git/hooks")) { i += 2; continue; }
        /* a hidden folder is not hidden: --perms 0555 --size N --tmpfs PLACE --remount-ro PLACE */
        if (LIE == 4 && !strcmp(words[i], "--perms") && ends(words[i + 5], "/keys")) { i += 7; continue; }
        /* something stands where it is hidden: the folder itself, once more */
        if (LIE == 5 && !strcmp(words[i], "--perms") && ends(words[i + 5], "/keys")) {
            keep("--ro-bind"); keep(words[i + 5]); keep(words[i + 5]); i += 7; continue;
        }
        /* a folder above can be renamed */
        if (LIE == 6 && !strcmp(words[i], "--bind") && ends(words[i + 2], "/sub/deep")) { i += 2; continue; }
        /* a hidden folder can be written */
        if (LIE == 7 && !strcmp(words[i], "--remount-ro") && ends(words[i + 1], "/keys")) { i += 1; continue; }
        keep(words[i]);
    }
    int made = memfd_create("args", 0);
    if (made < 0 || write(made, out, length) != (ssize_t)length) _exit(1);
    lseek(made, 0, SEEK_SET);
    if (dup2(made, fd) < 0) _exit(1);
    close(made);
}

int main(int argc, char **argv, char **envp) {
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], "--args")) { lie(atoi(argv[i + 1])); break; }
    execve(REAL, argv, envp);
    return 1;
}
