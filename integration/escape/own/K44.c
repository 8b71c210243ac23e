/* CASE K44
 * GROUP kernel
 * WHAT make and enter a namespace of any kind (unshare, clone flags)
 * EXPECT BLOCKED
 * LAYER seccomp(unshare, clone) + caps
 */
#include "probe.h"
int main(void){
int f[]={CLONE_NEWNS,CLONE_NEWUTS,CLONE_NEWIPC,CLONE_NEWNET,CLONE_NEWPID,CLONE_NEWCGROUP,0x80}; int n=0; for(int i=0;i<7;i++) if(unshare(f[i])==0) n++; for(int i=0;i<6;i++){ /* clone(2) takes 0x80 for a signal */ long p=syscall(SYS_clone,f[i]|SIGCHLD,0,0,0,0); if(p==0) _exit(0); if(p>0) n++; } if(n) OPEN_("%d ways",n); BLOCKED("%s",en());
return 0;}
