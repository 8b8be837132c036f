// A method with a loop whose body is inlined, for its name and lines.
package main

import "fmt"

type ring struct{ n int }

func mixed(i, n, sum int) int {
	return i*n ^ sum
}

//go:noinline
func (r *ring) turn(rounds int) int {
	sum := 0
	for i := 0; i < rounds; i++ {
		sum += mixed(i, r.n, sum)
	}
	return sum
}

func main() {
	r := &ring{3}
	fmt.Println(r.turn(1000))
}
