// Programs in Go with a planted cause, and healthy ones; as cases.h.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

var (
	planted int64 // ns
	sink    float64
	kept    [900000]*[3]*int
)

//go:noinline
func steps(count int) float64 {
	sum := 1.0
	for i := 0; i < count; i++ {
		sum = sum*0.999999 + float64(i)
	}
	return sum
}

func add(began time.Time) { atomic.AddInt64(&planted, int64(time.Since(began))) }

func inGoroutines(count int, body func()) {
	var all sync.WaitGroup
	for i := 0; i < count; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			body()
		}()
	}
	all.Wait()
}

// --- locks ---

var table sync.Mutex

//go:noinline
func updatesTheTable() {
	table.Lock()
	began := time.Now()
	steps(200000)
	add(began)
	table.Unlock()
	steps(20000)
}

func goMutex() {
	inGoroutines(4, func() {
		for i := 0; i < 1200; i++ {
			updatesTheTable()
		}
	})
}

//go:noinline
func savesTheLedger(file *os.File) {
	table.Lock()
	began := time.Now()
	file.WriteAt([]byte("saved"), 0)
	file.Sync()
	add(began)
	table.Unlock()
	steps(2000)
}

func goMutexOverSync() {
	file, _ := os.CreateTemp(".", "ledger")
	defer os.Remove(file.Name())
	inGoroutines(4, func() {
		for i := 0; i < 150; i++ {
			savesTheLedger(file)
		}
	})
}

// --- channels ---

//go:noinline
func decodesAnItem() float64 {
	began := time.Now()
	defer add(began)
	return steps(1000000)
}

//go:noinline
func takesItems(items <-chan float64) {
	for item := range items {
		sink = item + steps(50000)
	}
}

func goSlowProducer() {
	items := make(chan float64)
	go func() {
		for i := 0; i < 1500; i++ {
			items <- decodesAnItem()
		}
		close(items)
	}()
	inGoroutines(4, func() { takesItems(items) })
}

//go:noinline
func handsOverEach(out chan<- int) {
	for i := 0; i < 3000000; i++ {
		out <- i
	}
	close(out)
}

func goTinyItems() {
	items := make(chan int)
	go handsOverEach(items)
	for item := range items {
		sink += float64(item)
	}
}

//go:noinline
func readsTheInputAlone() {
	began := time.Now()
	steps(800000000)
	add(began)
}

//go:noinline
func worksOnAPart() { steps(150000000) }

func goSerialPart() {
	readsTheInputAlone()
	inGoroutines(4, worksOnAPart)
}

// --- memory, files, processes ---

//go:noinline
func keepsLists() {
	for i := 0; i < 400000; i++ {
		number := i
		kept[(i*7)%len(kept)] = &[3]*int{&number, &number, nil}
	}
}

func goGarbage() {
	debug.SetGCPercent(5)
	for i := 0; i < 15; i++ {
		keepsLists()
	}
}

//go:noinline
func writesTheLog(file *os.File) {
	began := time.Now()
	file.WriteAt([]byte("a line"), 0)
	file.Sync()
	add(began)
	steps(20000)
}

func goSyncEachRecord() {
	file, _ := os.CreateTemp(".", "log")
	defer os.Remove(file.Name())
	for i := 0; i < 400; i++ {
		writesTheLog(file)
	}
}

//go:noinline
func startsAConverter() {
	began := time.Now()
	exec.Command("/bin/true").Run()
	add(began)
}

func goProcessPerItem() {
	for i := 0; i < 250; i++ {
		startsAConverter()
	}
}

//go:noinline
func keepsInAMap(words map[int]int) {
	for i := 0; i < 12000000; i++ {
		words[(i*2654435761)%200003]++
	}
}

func goMap() { keepsInAMap(map[int]int{}) }

// --- healthy ---

//go:noinline
func answersARequest() { sink = steps(3000000) }

func healthyGoPool() {
	requests := make(chan int, 64)
	go func() {
		for i := 0; i < 100; i++ {
			requests <- i
			time.Sleep(20 * time.Millisecond)
		}
		close(requests)
	}()
	inGoroutines(4, func() {
		for range requests {
			answersARequest()
		}
	})
}

//go:noinline
func serves(connection net.Conn) {
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		answersARequest()
		fmt.Fprintln(connection, "done")
	}
	connection.Close()
}

// The server's clients are its own: what they wait for is an answer, and no loss.
func healthyGoServer() {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go serves(connection)
		}
	}()
	inGoroutines(3, func() {
		connection, _ := net.Dial("tcp", listener.Addr().String())
		answers := bufio.NewScanner(connection)
		for i := 0; i < 40; i++ {
			fmt.Fprintln(connection, "request")
			answers.Scan()
			time.Sleep(30 * time.Millisecond)
		}
		connection.Close()
	})
	listener.Close()
}

//go:noinline
func worksOnItsOwn() { steps(400000000) }

func healthyGoWork() { inGoroutines(runtime.NumCPU(), worksOnItsOwn) }

func healthyGoTicks() {
	ticker := time.NewTicker(20 * time.Millisecond)
	for i := 0; i < 100; i++ {
		<-ticker.C
		answersARequest()
	}
}

//go:noinline
func readsABlock() float64 { return steps(1000000) }

//go:noinline
func packsABlock(block float64) float64 { return block + steps(1000000) }

func healthyGoPipeline() {
	read, packed := make(chan float64, 8), make(chan float64, 8)
	go func() {
		for i := 0; i < 1000; i++ {
			read <- readsABlock()
		}
		close(read)
	}()
	go func() {
		for block := range read {
			packed <- packsABlock(block)
		}
		close(packed)
	}()
	for block := range packed {
		sink += block
	}
}

func main() {
	cases := map[string]func(){
		"go_mutex": goMutex, "go_mutex_over_sync": goMutexOverSync,
		"go_slow_producer": goSlowProducer, "go_tiny_items": goTinyItems,
		"go_serial_part": goSerialPart,
		"go_garbage":     goGarbage, "go_sync_each_record": goSyncEachRecord,
		"go_process_per_item": goProcessPerItem, "go_map": goMap,
		"healthy_go_pool": healthyGoPool, "healthy_go_server": healthyGoServer,
		"healthy_go_work": healthyGoWork, "healthy_go_ticks": healthyGoTicks,
		"healthy_go_pipeline": healthyGoPipeline,
	}
	cases[os.Args[1]]()
	fmt.Printf("%.6f\n", float64(planted)/1e9)
}
