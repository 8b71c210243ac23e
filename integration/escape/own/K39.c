/* CASE K39
 * GROUP kernel
 * WHAT this process: filter, no_new_privs, no capability in any set
 * EXPECT BLOCKED
 * LAYER cage-init, attested
 */
#include "probe.h"
int main(void){
static char b[8192]; rd("/proc/self/status",b,sizeof b); int nnp=0,sec=0; unsigned long c=0,all=0; char*e=strstr(b,"NoNewPrivs:"); if(e)sscanf(e+11,"%d",&nnp); e=strstr(b,"Seccomp:"); if(e)sscanf(e+8,"%d",&sec); const char*n[]={"CapInh:","CapPrm:","CapEff:","CapBnd:","CapAmb:",0}; for(int i=0;n[i];i++){e=strstr(b,n[i]); if(e&&sscanf(e+7,"%lx",&c)==1) all|=c;} if(nnp!=1||sec!=2||all) OPEN_("NoNewPrivs=%d Seccomp=%d caps=%lx",nnp,sec,all); BLOCKED("all on");
return 0;}
