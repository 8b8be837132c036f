/* The maps of Java: processes that run HotSpot, and for each walk's memory that of the frame it is at. */
#ifndef HPCD_JVM_MAPS_H
#define HPCD_JVM_MAPS_H

#include "helpers.h"
#include "runtimes/jvm_values.h"

DEFINE_MAP(JVMS, HASH, u32, struct jvm);
DEFINE_MAP(JVM_FRAMES, PERCPU_ARRAY, u32, struct jvm_frame);

#endif
