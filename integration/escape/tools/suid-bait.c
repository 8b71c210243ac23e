/* Set-user-id root while the suite runs: says whether that had an effect, and does nothing else. */
#include <unistd.h>
int main(void) { return geteuid() != 0; }
