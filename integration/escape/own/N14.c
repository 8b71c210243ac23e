/* CASE N14
 * GROUP network
 * WHAT bind a port that the host would answer on, and packet sockets
 * EXPECT BLOCKED
 * LAYER net ns; seccomp
 */
#include "probe.h"
int main(void){
int s=socket(AF_PACKET,SOCK_RAW,0); CHECK(s>=0,"socket(AF_PACKET)");
return 0;}
