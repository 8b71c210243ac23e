/* CASE N04
 * GROUP network
 * WHAT UDP to the outside (DNS)
 * EXPECT BLOCKED
 * LAYER net ns
 */
#include "probe.h"
int main(void){
int s=socket(AF_INET,SOCK_DGRAM,0); struct sockaddr_in a={.sin_family=AF_INET,.sin_port=htons(53)}; inet_pton(AF_INET,"192.0.2.1",&a.sin_addr); int r=connect(s,(void*)&a,sizeof a); CHECK(r==0,"udp route to 192.0.2.1:53");
return 0;}
