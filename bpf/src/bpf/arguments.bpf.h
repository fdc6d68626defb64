/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a process was started with, as a number: two that have the same name and the same arguments
 * are the same program to us, and `python3 a.py` is not `python3 b.py`. Only the hash leaves the
 * kernel.
 */
#ifndef __AMP_ARGUMENTS_H
#define __AMP_ARGUMENTS_H

/* Bytes of arguments that count, but for their length. */
#define ARGUMENT_CHUNK 64
#define ARGUMENT_CHUNKS 64

/* A hash of the arguments of process @pid, if it is what runs here; 0 if they cannot be read now. */
static __noinline u64 own_arguments(u32 pid)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 words[ARGUMENT_CHUNK / 8];
	struct mm_struct *mm = p->mm;
	u64 start, length, hash;
	u32 i, k;

	if ((u32)p->pid != pid)
		return 0;
	/* a thread of the kernel */
	if (!mm)
		return 1;
	start = mm->arg_start;
	length = mm->arg_end - start;
	hash = length + 0x9e3779b97f4a7c15ULL;
	bpf_for(i, 0, ARGUMENT_CHUNKS) {
		u64 left, size;

		if (i * ARGUMENT_CHUNK >= length)
			break;
		left = length - i * ARGUMENT_CHUNK;
		size = left < ARGUMENT_CHUNK ? left : ARGUMENT_CHUNK;
		__builtin_memset(words, 0, sizeof(words));
		if (bpf_probe_read_user(words, size & (2 * ARGUMENT_CHUNK - 1), (void *)(start + i * ARGUMENT_CHUNK)))
			return 0;
		for (k = 0; k < ARGUMENT_CHUNK / 8; k++) {
			hash = (hash ^ words[k]) * 0xff51afd7ed558ccdULL;
			hash ^= hash >> 32;
		}
	}
	return hash ?: 1;
}

#endif
