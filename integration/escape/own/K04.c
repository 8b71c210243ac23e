/* CASE K04
 * GROUP kernel
 * WHAT join a session keyring by name
 * EXPECT BLOCKED
 * LAYER seccomp(keyctl)
 */
#include "probe.h"
int main(void){
long r=syscall(SYS_keyctl,KEYCTL_JOIN_SESSION_KEYRING,"mews-x"); CHECK(r>0,"keyctl(JOIN_SESSION_KEYRING)");
return 0;}
