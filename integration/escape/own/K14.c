/* CASE K14
 * GROUP kernel
 * WHAT setns to a namespace of pid 1
 * EXPECT BLOCKED
 * LAYER seccomp(setns); pid 1 not dumpable
 */
#include "probe.h"
int main(void){
int f=open("/proc/1/ns/uts",O_RDONLY); if(f<0) BLOCKED("open: %s",en()); int r=setns(f,0); CHECK(r==0,"setns(pid 1, uts)");
return 0;}
