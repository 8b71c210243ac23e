/* CASE FS30
 * GROUP filesystem
 * WHAT setuid and setgid bits by every call that takes a mode
 * EXPECT BLOCKED
 * LAYER seccomp on mode bits
 */
#include "probe.h"
int main(void){
char p[256]; int n=0; snprintf(p,256,"%s/s1",WS); unlink(p); int f=open(p,O_CREAT|O_WRONLY,04755); struct stat st; if(f>=0&&fstat(f,&st)==0&&st.st_mode&06000)n++; if(f<0){f=open(p,O_CREAT|O_WRONLY,0755);} if(chmod(p,06755)==0)n++; if(fchmodat(AT_FDCWD,p,02755,0)==0)n++; if(syscall(452,AT_FDCWD,p,04755,0)==0)n++; struct {uint64_t f,m,r;} h={O_CREAT|O_WRONLY,04755,0}; snprintf(p,256,"%s/s2",WS); unlink(p); f=syscall(437,AT_FDCWD,p,&h,sizeof h); if(f>=0&&fstat(f,&st)==0&&st.st_mode&06000)n++; if(n) OPEN_("%d ways",n); BLOCKED("%s",en());
return 0;}
