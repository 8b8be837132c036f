// Goroutines that compute, allocate and meet on channels. Usage: goroutines SECONDS
package main

import (
	"os"
	"strconv"
	"sync"
	"time"
)

type tree struct{ left, right *tree }

//go:noinline
func build(depth int) *tree {
	if depth == 0 {
		return &tree{}
	}
	return &tree{build(depth - 1), build(depth - 1)}
}

//go:noinline
func spin(n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum = sum*31 + i
	}
	return sum
}

func worker(until time.Time, in, out chan int, done *sync.WaitGroup) {
	defer done.Done()
	for time.Now().Before(until) {
		spin(100000)
		build(8)
		select {
		case out <- 1:
		case <-in:
		default:
		}
	}
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	until := time.Now().Add(time.Duration(seconds * 1e9))
	a, b := make(chan int), make(chan int)
	var done sync.WaitGroup
	for i := 0; i < 2; i++ {
		done.Add(2)
		go worker(until, a, b, &done)
		go worker(until, b, a, &done)
	}
	done.Wait()
}
