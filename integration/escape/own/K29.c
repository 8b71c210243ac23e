/* CASE K29
 * GROUP kernel
 * WHAT iopl, kexec_load, swapon, acct, quotactl
 * EXPECT BLOCKED
 * LAYER caps + seccomp
 */
#include "probe.h"
int main(void){
char s[99]=""; if(syscall(172,3)==0) strcat(s,"iopl "); syscall(172,0); if(syscall(163,NULL)==0) strcat(s,"acct "); if(*s) OPEN_("%s",s); BLOCKED("%s",en());
return 0;}
