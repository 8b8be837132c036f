! A ring of messages of 40, 80, ... 800 bytes, 20 reductions to all.
program ring
  use mpi
  implicit none
  integer :: rank, size, error, at, out(1000), in(1000), request, status(MPI_STATUS_SIZE)
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, size, error)
  out = rank
  do at = 1, 20
    call MPI_Irecv(in, 1000, MPI_INTEGER, modulo(rank + size - 1, size), at, &
                   MPI_COMM_WORLD, request, error)
    call MPI_Send(out, 10 * at, MPI_INTEGER, modulo(rank + 1, size), at, MPI_COMM_WORLD, error)
    call MPI_Wait(request, status, error)
    call MPI_Allreduce(out, in, 5, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  end do
  call MPI_Finalize(error)
end program
