"""The programs with one planted cause each, and healthy ones, by their source: one of
``tests/programs``, which the soak test has, too, or beside this file."""

from __future__ import annotations

from tests.soak.findings import CAUSES, EVEN_RANKS, HEALTHY, LATE_RANK, Case

_TEAM = "communication imbalance"
_MPI = f"{_TEAM} messages"

PLANTED = {
    "causes.c": tuple(CAUSES.values()),
    "late_rank.c": (LATE_RANK,),
    "lock_over_fsync.py": (
        Case("lock_over_fsync", "communication locks", r"Ledger\.book.*fsync", exact=False),
    ),
    "slow_reader.py": (
        Case("slow_reader", "communication", r"produces.*reads_slowly", exact=False),
    ),
    "global_lock.py": (Case("global_lock", "locks", "computes_in_python"),),
    "slow_server.py": (
        Case("slow_server", "hot system processes", "computes_the_answer", exact=False),
    ),
    "sync_each_record.py": (
        Case("sync_each_record", "blocked", "writes_the_log > fsync", exact=False),
    ),
    "slow_pattern.py": (Case("slow_pattern", "hot", "looks_for_the_pattern"),),
    "polls_with_sleep.sh": (Case("polls_with_sleep", "sleep children", ""),),
    "short_commands.sh": (Case("short_commands", "children", r"\d+ processes"),),
    "lock_over_sleep.c": (
        Case("lock_over_sleep", "locks", "updates_the_table; held .* asks_the_device", exact=False),
    ),
    "threads.c": (
        Case("writer_lock", "locks", "reads_the_table; held .* in rewrites_the_table"),
        Case("spin_lock", "locks", "adds_to_the_total"),
        Case("shared_log", "locks", "logs_a_line"),
        Case("small_pool", "communication", "asks_the_database"),
        Case("slow_producer", "communication", "takes_an_item.*decodes_an_item"),
        Case("late_at_the_barrier", "communication", "steps.*saves_the_state"),
        Case("backoff", "sleep", "waits_to_try_again"),
        Case(
            "thread_per_request", "system processes children", "starts_a_thread_for_it", exact=False
        ),
    ),
    "files.c": (
        Case("synchronous_writes", "blocked", "writes_a_record > write"),
        Case("directory_walk", "system", "walks_the_tree > "),
        Case("byte_by_byte", "system", "reads_a_byte > read", exact=False),
        Case("file_lock", "locks", "books_in_the_file; held .*there"),
        Case("mapping_churn", "system", "maps_and_unmaps > (mmap|munmap)", exact=False),
        Case("copy_on_write", "system", "writes_to_copied_pages"),
        Case("cleared_buffers", "hot", "clears_the_buffer"),
        Case("far_server", "network", "asks_the_far_server > recv"),
        Case("slow_names", "network", "looks_up_the_name > getaddrinfo"),
        Case(
            "connection_per_request",
            "system blocked network",
            "connects_anew > connect",
            exact=False,
        ),
    ),
    "processes.c": (
        Case("fork_of_a_large_process", "system children", "forks_for_an_item", exact=False),
        Case("slow_filter", "communication", "compresses_slowly"),
        Case("slow_worker", "communication hot", "makes_the_tile", exact=False),
        Case("many_processes", "runnable", "computes_a_frame.*want to run"),
        Case("nice_beside_another", "runnable", "computes_a_frame|threads are bound to CPU"),
        Case("limited_group", "runnable", "limit withheld"),
    ),
    "teams.c": (
        Case("triangle", _TEAM, "computes_a_row"),
        Case("single_asks", "communication sleep", "asks_for_parameters", exact=False),
        Case("ordered_part", "communication locks", "ordered_part|writes_in_order"),
        Case("lock_of_openmp", "communication locks", "updates_the_histogram"),
        Case("slow_tasks", _TEAM, "makes_a_task", exact=False),
        Case("checkpoint_alone", "communication", "writes_the_checkpoint"),
    ),
    "llvm_teams.c": (
        Case("llvm_imbalance", _TEAM, "relaxes_unevenly"),
        Case("llvm_critical", "communication locks", "updates_the_counts"),
        Case("llvm_tiny_regions", "communication", "adds_very_few", exact=False),
        Case("llvm_serial_part", _TEAM, "sorts_alone", exact=False),
        Case("llvm_ordered", "communication locks", "omp_outlined|appends_in_order"),
    ),
    "Causes.java": (
        Case("java_monitor", "locks", "updatesTheTable"),
        Case("java_garbage", "hot communication", "GC|[Gg]arbage|libjvm", exact=False),
    ),
    "causes.go": (
        Case("go_mutex", "hot locks", "updatesTheTable", exact=False),
        Case("go_mutex_over_sync", "blocked", r"savesTheLedger > .*Sync", exact=False),
        Case("go_slow_producer", "hot communication", "decodesAnItem", exact=False),
        Case("go_tiny_items", "hot", "goTinyItems|handsOverEach", exact=False),
        Case("go_serial_part", f"hot {_TEAM}", "readsTheInputAlone", exact=False),
        Case("go_garbage", "hot", "garbage collector", exact=False),
        Case("go_sync_each_record", "blocked", r"writesTheLog > .*Sync", exact=False),
        Case("go_process_per_item", "children", r"\d+ processes", exact=False),
        Case("go_map", "hot", r"keepsInAMap.*runtime\.map", exact=False),
    ),
    "ranks.c": (
        Case("reader_rank", f"{_MPI} sleep", "reads_the_next_step", exact=False),
        Case("saving_rank", _MPI, "saves_its_part"),
        Case("uneven_cells", _MPI, "computes_its_cells"),
        Case("chain_of_ranks", _MPI, "goes_on_from", ("--mpi",)),
    ),
    "interpreter.py": (
        Case("garbage_collection", "hot", "collects_garbage"),
        Case("deep_copies", "hot", "copies_the_state"),
        Case("list_as_queue", "hot", "inserts_in_front"),
        Case("encodes_each_time", "hot", "encodes_again"),
        Case("logging_each_step", "hot system", "logs_the_step", exact=False),
        Case("commit_per_row", "blocked", "commits_each_row", exact=False),
        Case("blocked_event_loop", "sleep", "answers_with_a_pause"),
        Case("slow_source", "communication", "takes_blocks|decompresses", exact=False),
        Case("interpreter_convoy", "locks hot", "counts_in_python", exact=False),
        Case("process_per_item", "children", "starts_a_converter", exact=False),
    ),
}
SOUND = {
    "causes.c": " ".join(HEALTHY),
    "late_rank.c": EVEN_RANKS.name,
    "healthy_thread_pool.py": "healthy_thread_pool",
    "healthy_pipeline.sh": "healthy_pipeline",
    "healthy_build.sh": "healthy_build",
    "threads.c": "healthy_phases healthy_queue healthy_ticks healthy_epoll_server",
    "processes.c": "healthy_batches",
    "files.c": "healthy_thread_server",
    "teams.c": "healthy_tasks",
    "llvm_teams.c": "healthy_llvm",
    "Causes.java": "healthy_java_pool",
    "causes.go": "healthy_go_pool healthy_go_server healthy_go_work healthy_go_ticks"
    " healthy_go_pipeline",
    "interpreter.py": "healthy_worker_pool healthy_idle_workers healthy_asyncio_server",
}
"""The names of healthy programs, by their source."""

GROUPS = {
    "locks": "chain_of_locks critical_section lock_over_fsync lock_over_sleep global_lock"
    " writer_lock spin_lock shared_log file_lock lock_of_openmp interpreter_convoy",
    "teams of OpenMP": "tiny_regions imbalance inlined_imbalance serial_part swap_of_roles"
    " triangle single_asks ordered_part slow_tasks checkpoint_alone",
    "teams of LLVM's OpenMP": "llvm_imbalance llvm_critical llvm_tiny_regions llvm_serial_part"
    " llvm_ordered",
    "Java": "java_monitor java_garbage",
    "Go": "go_mutex go_mutex_over_sync go_slow_producer go_tiny_items go_serial_part go_garbage"
    " go_sync_each_record go_process_per_item go_map",
    "ranks of MPI": "late_rank reader_rank saving_rank uneven_cells chain_of_ranks",
    "other threads": "false_wakeups sleep_polling spinning polls_with_sleep small_pool"
    " slow_producer late_at_the_barrier backoff thread_per_request blocked_event_loop slow_source",
    "processes": "short_children short_commands pipe_ping_pong slow_reader slow_server"
    " fork_of_a_large_process slow_filter slow_worker process_per_item",
    "files": "metadata_storm fdatasync_per_step reading_a_big_file sync_each_record"
    " synchronous_writes directory_walk byte_by_byte commit_per_row",
    "network": "far_server slow_names connection_per_request",
    "memory": "page_faults leak mapping_churn copy_on_write cleared_buffers",
    "CPUs": "threads_pinned oversubscription stops_itself many_processes nice_beside_another"
    " limited_group",
    "hot code": "hot_leaf_of_two brief_threads slow_pattern garbage_collection deep_copies"
    " list_as_queue encodes_each_time logging_each_step",
}
"""The programs with a cause, by its kind; the others are healthy."""
