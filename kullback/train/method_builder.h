#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kullback/base/registry.h"

namespace kullback {

/// What the builders of all families of recipes share: a method's texts and the options of a struct `O`. `Self` is the builder
/// itself, so that its calls chain.
template <class Self, class O>
class MethodBuilder {
 public:
  Self& summary(std::string text) { return method_.summary = std::move(text), self(); }
  Self& formula(std::string text) { return method_.formula = std::move(text), self(); }
  Self& when(std::string text) { return method_.when = std::move(text), self(); }
  Self& paper(Paper paper) { return method_.papers.push_back(std::move(paper)), self(); }

  template <class Member, class Accepts>
  Self& option(std::string name, Member O::*member, Accepts accepts, std::string help, std::string source = "") {
    options_.option(std::move(name), member, std::move(accepts), std::move(help), std::move(source));
    return self();
  }
  template <class Enum>
  Self& option(std::string name, Enum O::*member, Choices<Enum> choices, std::string help, std::string source = "") {
    options_.option(std::move(name), member, std::move(choices), std::move(help), std::move(source));
    return self();
  }
  template <class Member>
  Self& option(std::string name, Member O::*member, const char* help, std::string source = "") {
    options_.option(std::move(name), member, NumberRange{}, std::string(help), std::move(source));
    return self();
  }

 protected:
  MethodBuilder(std::string name, Family family) {
    method_.name = std::move(name);
    method_.family = family;
  }
  /// The method as `Registered` takes it.
  Method built(std::vector<std::string> needs, std::any recipe) const {
    Method method = method_;
    method.needs = std::move(needs);
    method.options = std::make_shared<Options<O>>(options_);
    method.recipe = std::move(recipe);
    return method;
  }

  /// The same function with the options' type erased.
  template <class R>
  static std::function<R(const void*)> untyped(std::function<R(const O&)> f) {
    return [f = std::move(f)](const void* o) { return f(*static_cast<const O*>(o)); };
  }
  template <class R, class A>
  static std::function<R(A, const void*)> untyped(std::function<R(A, const O&)> f) {
    return [f = std::move(f)](A a, const void* o) { return f(std::forward<A>(a), *static_cast<const O*>(o)); };
  }
  template <class R, class A, class B>
  static std::function<R(A, B, const void*)> untyped(std::function<R(A, B, const O&)> f) {
    return [f = std::move(f)](A a, B b, const void* o) {
      return f(std::forward<A>(a), std::forward<B>(b), *static_cast<const O*>(o));
    };
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }

  Method method_;
  Options<O> options_;
};

}  // namespace kullback
