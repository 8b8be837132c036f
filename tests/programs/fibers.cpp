// Fibers of Boost.Context: fibers SECONDS. One resumes another; both compute.
#include <boost/context/fiber.hpp>
#include <chrono>
#include <cstdlib>
namespace ctx = boost::context;
static volatile unsigned long sum;
__attribute__((noinline)) void burn(int n) { for (int i = 0; i < n; i++) sum = sum * 31 + i; }
int main(int, char **argv)
{
	auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(atof(argv[1]));
	while (std::chrono::steady_clock::now() < end) {
		ctx::fiber one{[](ctx::fiber &&back) {
			for (int i = 0; i < 20; i++) { burn(50000); back = std::move(back).resume(); }
			return std::move(back);
		}};
		while (one) { burn(50000); one = std::move(one).resume(); }
	}
}
