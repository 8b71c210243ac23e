/* CASE T09
 * GROUP pty
 * WHAT open a terminal that is not of this cage
 * EXPECT BLOCKED
 * LAYER devpts of its own
 */
#include "probe.h"
int main(void){
DIR*d=opendir("/dev/pts"); int n=0; struct dirent*e; struct stat me,st; fstat(0,&me); while(d&&(e=readdir(d))){ char p[64]; snprintf(p,64,"/dev/pts/%s",e->d_name); if(!atoi(e->d_name)&&*e->d_name!=48) continue; if(stat(p,&st)==0&&st.st_uid!=getuid()&&st.st_uid!=65534) n++; } int h=access("/dev/pts/ptmx",F_OK); if(n) OPEN_("%d terminals of others are seen",n); BLOCKED("none (ptmx %d)",h);
return 0;}
