/* CASE K24
 * GROUP kernel
 * WHAT x32 system call numbers
 * EXPECT BLOCKED
 * LAYER seccomp: numbers above the table
 */
#include "probe.h"
int main(void){
long r=syscall(0x40000000|39); if(r<0){ BLOCKED("x32 getpid: %s",en()); } OPEN_("x32 getpid=%ld",r);
return 0;}
