/* CASE S07
 * GROUP signals
 * WHAT stop or kill the zygote and the leaders (every process that is not below us)
 * EXPECT BLOCKED
 * LAYER Landlock cannot tell them apart: pid 1 reports all the same
 */
#include "probe.h"
int main(void){
int n=0; pid_t me=getpid(); for(int p=2;p<64;p++){ if(p==me||p==getppid()) continue; if(kill(p,0)==0) n++; } INFO("%d other processes of the cage may be signalled",n);
return 0;}
