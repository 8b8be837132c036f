// Deeply inlined calls: algorithms over containers of small types. Usage: inlined [N]
#include <algorithm>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

template <int N> struct Polynomial {
	static inline double value(double x) { return x * Polynomial<N - 1>::value(x) + N; }
};
template <> struct Polynomial<0> {
	static inline double value(double x) { return x; }
};

struct Particle {
	std::complex<double> position, velocity;
	std::string name;
	double energy() const { return std::norm(velocity) / 2 + Polynomial<6>::value(std::abs(position)); }
};

static std::optional<Particle> fastest(const std::vector<Particle> &all)
{
	auto found = std::max_element(all.begin(), all.end(),
	    [](const auto &a, const auto &b) { return a.energy() < b.energy(); });
	if (found == all.end())
		return {};
	return *found;
}

static __attribute__((noinline)) void step(std::vector<Particle> &all, double dt)
{
	for (auto &each : all) {
		each.position += each.velocity * dt;
		each.velocity *= std::polar(1.0, dt);
	}
}

static __attribute__((noinline)) double tally(const std::vector<Particle> &all)
{
	std::map<std::string, std::vector<double>> groups;
	std::unordered_map<long, int> bins;
	for (const auto &each : all) {
		groups[each.name.substr(0, 1)].push_back(each.energy());
		bins[static_cast<long>(each.energy())]++;
	}
	double total = 0;
	for (auto &[name, energies] : groups) {
		std::sort(energies.begin(), energies.end(), std::greater<>());
		total += std::accumulate(energies.begin(), energies.end(), 0.0) / energies.size();
		std::nth_element(energies.begin(), energies.begin() + energies.size() / 2, energies.end());
		total += energies[energies.size() / 2];
	}
	for (const auto &[bin, count] : bins)
		total += Polynomial<9>::value(bin) * count;
	return total;
}

int main(int argc, char **argv)
{
	std::vector<Particle> all(argc > 1 ? std::atoi(argv[1]) : 100);
	int number = 0;
	for (auto &each : all)
		each = {{number * 0.5, 1.0}, {1.0, number * 0.25}, std::to_string(number++)};
	for (int i = 0; i < 10; i++)
		step(all, 0.125);
	std::stable_sort(all.begin(), all.end(),
	    [](const Particle &a, const Particle &b) { return a.energy() > b.energy(); });
	auto best = fastest(all);
	std::printf("%g %s\n", tally(all), best ? best->name.c_str() : "none");
}
