/* In a program's place: NAME becomes NAME.real beside it, with trickle.so preloaded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char own[4096] = "", path[4200];
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0) return perror("/proc/self/exe"), 127;
    char *slash = strrchr(own, '/');
    snprintf(path, sizeof path, "%.*s/trickle.so", (int) (slash - own), own);
    setenv("LD_PRELOAD", path, 1);
    snprintf(path, sizeof path, "%s.real", own);
    execv(path, argv);
    return perror(path), 127;
}
