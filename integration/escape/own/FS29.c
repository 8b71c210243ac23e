/* CASE FS29
 * GROUP filesystem
 * WHAT remount the root read-write (mount(2) and mount_setattr recursively)
 * EXPECT BLOCKED
 * LAYER caps + seccomp
 */
#include "probe.h"
int main(void){
struct {uint64_t s,c,p,u;} a={0,1,0,0}; int r=mount(NULL,"/",NULL,MS_REMOUNT|MS_BIND,NULL); if(r<0) r=syscall(442,AT_FDCWD,"/",0x8000,&a,sizeof a); CHECK(r==0,"remount / rw");
return 0;}
