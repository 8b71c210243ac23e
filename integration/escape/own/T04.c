/* CASE T04
 * GROUP pty
 * WHAT TIOCLINUX paste of a console selection
 * EXPECT BLOCKED
 * LAYER seccomp, low 32 bits
 */
#include "probe.h"
int main(void){
char a[]={2,0}; int r=ioctl(0,0x541C,a); if(r<0&&errno==EPERM) BLOCKED("EPERM"); if(r<0) BLOCKED("TIOCLINUX: %s",en()); OPEN_("TIOCLINUX");
return 0;}
