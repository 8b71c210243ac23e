/* CASE K19
 * GROUP kernel
 * WHAT AF_VSOCK socket (ignores network namespaces)
 * EXPECT BLOCKED
 * LAYER seccomp(socket family)
 */
#include "probe.h"
int main(void){
int s=socket(40,SOCK_STREAM,0); CHECK(s>=0,"socket(AF_VSOCK)");
return 0;}
