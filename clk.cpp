#include <cstdio>
#include <chrono>
#include <x86intrin.h>
int main(){ for(int k=0;k<10;k++){auto t0=std::chrono::steady_clock::now(); auto a=__rdtsc(); long i=0; asm volatile("1: dec %0; jnz 1b":"=r"(i):"0"(100000000L)); auto t1=std::chrono::steady_clock::now(); double s=std::chrono::duration<double>(t1-t0).count(); printf("%.2f GHz  ",.1/s);} puts("");}
