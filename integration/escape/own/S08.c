/* CASE S08
 * GROUP signals
 * WHAT change the limits of pid 1 (enough to end it, and with it the true exit status)
 * EXPECT BLOCKED
 * LAYER seccomp(prlimit64 of another process)
 */
#include "probe.h"
int main(void){
struct rlimit l; int r=prlimit(1,RLIMIT_NOFILE,NULL,&l); CHECK(r==0,"prlimit(pid 1)");
return 0;}
