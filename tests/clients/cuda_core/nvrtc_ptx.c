// Stands before NVRTC (LD_PRELOAD), for a back end without machine code: a program that asks for
// that gets PTX. What it calls is NVRTC, which the program loads for all to see before it compiles.

#include <stddef.h>

int nvrtcGetPTX(void *program, char *text);
int nvrtcGetPTXSize(void *program, size_t *size);

int nvrtcGetCUBIN(void *program, char *code)
{
    return nvrtcGetPTX(program, code);
}

int nvrtcGetCUBINSize(void *program, size_t *size)
{
    return nvrtcGetPTXSize(program, size);
}
