/* CASE K34
 * GROUP kernel
 * WHAT bpf program load and map creation
 * EXPECT BLOCKED
 * LAYER seccomp(bpf)
 */
#include "probe.h"
int main(void){
struct {uint32_t t,k,v,n; char p[100];} a; memset(&a,0,sizeof a); a.t=2;a.k=4;a.v=4;a.n=1; int r=syscall(321,0,&a,sizeof a); CHECK(r>=0,"bpf(MAP_CREATE)");
return 0;}
