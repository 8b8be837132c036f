// Deep templates, virtual calls, std::function, exceptions thrown through them, for so many seconds of
// CPU time. Usage: templates SECONDS
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static volatile double sink;

template <int N> struct Level {
	static __attribute__((noinline)) double run(double x)
	{
		std::vector<double> local(N + 3, x);
		double inner = Level<N - 1>::run(x + local[N % local.size()]);
		sink = inner;
		return inner + local.back();
	}
};

template <> struct Level<0> {
	static __attribute__((noinline)) double run(double x)
	{
		for (int i = 0; i < 500; i++)
			x = x * 1.0000001 + i;
		if (static_cast<long>(x) % 7 == 0)
			throw std::runtime_error("seven " + std::to_string(x));
		return x;
	}
};

struct Shape {
	virtual ~Shape() = default;
	virtual double area(int depth) const = 0;
};

template <int N> struct Polygon : Shape {
	__attribute__((noinline)) double area(int depth) const override
	{
		double sum = Level<N>::run(depth);
		return sum + N;
	}
};

static __attribute__((noinline)) double guarded(const std::function<double()> &call)
{
	try {
		return call();
	} catch (const std::exception &error) {
		return static_cast<double>(std::string(error.what()).size());
	}
}

int main(int argc, char **argv)
{
	std::clock_t end = CLOCKS_PER_SEC * (argc > 1 ? std::atoi(argv[1]) : 1);
	std::map<std::string, std::unique_ptr<Shape>> shapes;
	shapes["small"] = std::make_unique<Polygon<5>>();
	shapes["medium"] = std::make_unique<Polygon<20>>();
	shapes["large"] = std::make_unique<Polygon<60>>();
	double total = 0;
	for (int i = 0; std::clock() < end; i++)
		for (const auto &[name, shape] : shapes) {
			total += guarded([&] { return shape->area(i); });
			std::vector<std::string> words(200, name + std::to_string(i));
			std::sort(words.begin(), words.end(), [](const auto &a, const auto &b) { return b < a; });
			total += words.front().size();
		}
	return total == 0;
}
