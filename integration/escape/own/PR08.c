/* CASE PR08
 * GROUP proc
 * WHAT read the policy from the arguments of pid 1, or of any other process
 * EXPECT BLOCKED
 * LAYER pid 1 is cage-init without arguments; bwrap gets its own by descriptor
 */
#include "probe.h"
int main(void){
DIR*d=opendir("/proc"); struct dirent*e; while(d&&(e=readdir(d))){ if(atoi(e->d_name)<=0) continue; char p[64],b[8192]; snprintf(p,64,"/proc/%s/cmdline",e->d_name); int r=rd(p,b,sizeof b); for(int i=0;i<r;i++) if(!b[i]) b[i]=32; if(r>0&&(strstr(b,"-bind")||strstr(b,"plan.json")||strstr(b,"mews-sleeper"))) OPEN_("pid %s: %.80s",e->d_name,b); } BLOCKED("no arguments of the host or the launcher");
return 0;}
