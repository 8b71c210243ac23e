/* CASE S04
 * GROUP signals
 * WHAT kill pid 1, trace it, stop it
 * EXPECT BLOCKED
 * LAYER pid namespace init; Landlock signal scope
 */
#include "probe.h"
int main(void){
int r=kill(1,0); CHECK(r==0,"kill(1,0)");
return 0;}
