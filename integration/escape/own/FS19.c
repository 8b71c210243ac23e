/* CASE FS19
 * GROUP filesystem
 * WHAT watch a hidden folder with inotify
 * EXPECT BLOCKED
 * LAYER mounts: it is not there
 */
#include "probe.h"
int main(void){
int f=inotify_init1(0); int r=inotify_add_watch(f,"/var/tmp/mews-rootdir",IN_CREATE); CHECK(r>=0,"inotify on a host folder");
return 0;}
