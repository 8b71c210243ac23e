/* CASE FS31
 * GROUP filesystem
 * WHAT write below /usr, /etc, /proc/sys, and into the root
 * EXPECT BLOCKED
 * LAYER mounts: read-only, and Landlock
 */
#include "probe.h"
int main(void){
const char*d[]={"/","/usr","/usr/bin","/etc","/proc/sys/kernel","/dev","/home",0}; char s[200]=""; for(int i=0;d[i];i++){char p[99]; snprintf(p,99,"%s/mews-w",d[i]); int f=open(p,O_CREAT|O_WRONLY,0600); if(f>=0){strcat(s,d[i]);strcat(s," ");unlink(p);}} if(*s) OPEN_("%s",s); BLOCKED("%s",en());
return 0;}
