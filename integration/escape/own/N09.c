/* CASE N09
 * GROUP network
 * WHAT MPTCP socket (passes by Landlock TCP rules)
 * EXPECT BLOCKED
 * LAYER seccomp(socket protocol)
 */
#include "probe.h"
int main(void){
int s=socket(AF_INET,SOCK_STREAM,262); CHECK(s>=0,"socket(IPPROTO_MPTCP)");
return 0;}
