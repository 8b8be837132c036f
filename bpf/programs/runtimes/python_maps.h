/* The maps of Python: processes that run CPython, programs that were recognised as such, whose addresses count from
 * where their code begins, and for each walk's memory the chain of its thread. */
#ifndef HPCD_PYTHON_MAPS_H
#define HPCD_PYTHON_MAPS_H

#include "helpers.h"
#include "runtimes/python_values.h"

DEFINE_MAP(PYTHONS, HASH, u32, struct python);
DEFINE_MAP(PYTHON_PROGRAMS, LRU_HASH, struct python_program, struct python);
DEFINE_MAP(PYTHON_CHAINS, PERCPU_ARRAY, u32, struct python_chain);

#endif
